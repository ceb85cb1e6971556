"""The hosts of a lab as an inventory has them."""

from __future__ import annotations

from pathlib import Path

from infra.inventory.hosts import InventoryHost
from infra.rehearsal.lab.client import Lab


def lab_host(
    lab: Lab, name: str, user: str | None = None, arguments: tuple[str, ...] | None = None
) -> InventoryHost:
    """A host of a lab; ssh arguments default to the lab's own configuration."""
    address = next(host.address for host in lab.status() if host.name == name)
    return InventoryHost(
        name=name,
        groups=(),
        address=address,
        service_address=address,
        port=22,
        user=user,
        private_key_file=None,
        ssh_arguments=("-F", str(lab.ssh_config)) if arguments is None else arguments,
        host_key=None,
        interface="eth0",
        rdma_devices=(),
        instance_id=None,
    )


def pythons() -> list[Path]:
    """Every Python 3 of this machine's pyenv, oldest first."""
    found = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")
    return sorted(found, key=lambda path: int(path.parts[-3].split(".")[1]))
