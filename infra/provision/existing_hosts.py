"""Stacks whose hosts exist already: nothing to provision, the inventory is exported as it stands."""

from __future__ import annotations

import pulumi

from infra.inventory.ansible_file import read_inventory
from infra.inventory.book import match_hosts
from infra.inventory.hosts import InventoryHost
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.platform import Declared


def decide(declared: Declared) -> dict[str, InventoryHost]:
    """The inventory's hosts, by the names that they have in the topology.

    Raises:
        InfraError: the inventory is missing, wrong, or has too few hosts.
    """
    topology = declared.topology
    path = declared.root / "ansible" / "inventory" / f"{topology.stack}.yml"
    inventory = read_inventory(path, f"ansible/inventory/{topology.stack}.yml")
    wanted = [(host.name, str(host.roles[0])) for host in topology.hosts]
    wanted += [(topology.edge_host, "edge")] if topology.has_own_edge else []
    return dict(match_hosts(wanted, inventory))


def make(declared: Declared, found: dict[str, InventoryHost]) -> dict[str, object]:
    """The inventory document of hosts that exist, and a word on what comes next."""
    spec, topology = declared.stack.spec, declared.topology
    records = {host.name: _record(found[host.name]) for host in topology.hosts}
    pulumi.log.info(f"Nothing to provision: the hosts exist. Next: fab up --stack {topology.stack}")
    return inventory_document(
        topology,
        records,
        weights={"storage": spec.weights.storage or "local", "path": spec.weights.path},
        spec=spec,
        url=f"{spec.scheme}://{found[topology.edge_host].service_address}:{spec.port}",
    )


def _record(host: InventoryHost) -> HostRecord:
    return HostRecord(
        address=host.service_address,
        instance_id=host.instance_id,
        user=host.user,
        proxy_command=_proxy_command(host.ssh_arguments),
        host_key=host.host_key,
        interface=host.interface,
        rdma_devices=host.rdma_devices,
    )


def _proxy_command(ssh_arguments: tuple[str, ...]) -> str | None:
    """The command of a `ProxyCommand=…` among the arguments, None without one."""
    option = "ProxyCommand="
    found = (word.removeprefix(option) for word in ssh_arguments if word.startswith(option))
    return next(found, None)
