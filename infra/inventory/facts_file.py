"""What was found on hosts, beside their inventory: `<inventory>.facts.yml`, written by `fab facts`.

`fab preflight` adds what groups reached when they added up for the first time.

Inventory first: a name that the inventory declares is never replaced by one that was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from infra.errors import StackError
from infra.inventory.collective_baseline import RecordedCollective, read_collective
from infra.inventory.hosts import Inventory, InventoryHost
from infra.spec.text_file import read_text
from infra.spec.yaml_source import read_yaml, why_unreadable

SCHEMA_VERSION = 1
HEAD = (
    "# Written by `fab facts`: what the hosts were when it ran. Write it again with the same command.\n"
    "# `collectives` are the first results of `fab preflight`: remove one, and its next run is recorded.\n"
)
TEXTS = ("address", "machine_id", "boot_id", "driver", "interface")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHost:
    """What one host was when `fab facts` looked.

    Args:
        address: the service address that it was found under.
        machine_id: of /etc/machine-id, "" when it has none.
        boot_id: of that boot.
        driver: the accelerators' driver, "" without one.
        interface: what carries the service address, "" when none does.
        page_size: bytes, 0 when unknown.
        rdma_devices: `device:port` of every active HCA port, by name.
        gids: index of the first RoCE v2 GID with an IPv4 address, by `device:port`.
        nvlink_domain: `<cluster UUID>.<clique>` of its GPUs, "" without a fabric that reaches over hosts.
    """

    address: str
    machine_id: str
    boot_id: str
    driver: str
    interface: str
    page_size: int
    rdma_devices: tuple[str, ...]
    gids: Mapping[str, int]
    nvlink_domain: str

    def as_document(self) -> dict[str, object]:
        """The entry of the file."""
        return {
            "address": self.address,
            "interface": self.interface,
            "rdma_devices": list(self.rdma_devices),
            "gids": dict(self.gids),
            "nvlink_domain": self.nvlink_domain,
            "page_size": self.page_size,
            "driver": self.driver,
            "machine_id": self.machine_id,
            "boot_id": self.boot_id,
        }


def facts_path(inventory: Path) -> Path:
    """Where the facts of an inventory's hosts lie."""
    return inventory.with_name(f"{inventory.stem}.facts.yml")


def facts_text(hosts: Mapping[str, RecordedHost], collectives: Sequence[RecordedCollective]) -> str:
    """The file's text; same facts, same text."""
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "hosts": {name: host.as_document() for name, host in hosts.items()},
    }
    if collectives:
        document["collectives"] = [one.as_document() for one in collectives]
    return HEAD + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)


def read_facts(path: Path) -> dict[str, RecordedHost]:
    """The hosts of a facts file by the inventory's name; empty when there is no such file.

    Raises:
        StackError: the file is not what `fab facts` writes.
    """
    data = _read(path)
    if data is None:
        return {}
    hosts = data.get("hosts")
    if not isinstance(hosts, Mapping):
        raise _unreadable(path, "It has no hosts.")
    return {str(name): _recorded(path, str(name), entry) for name, entry in hosts.items()}


def read_collectives(path: Path) -> tuple[RecordedCollective, ...]:
    """What groups reached when they were first measured; () when the file says nothing of it, or is not there.

    Raises:
        StackError: the file is not what these commands write.
    """
    rows = (_read(path) or {}).get("collectives", [])
    found = [read_collective(row) for row in rows] if isinstance(rows, list) else [None]
    if None in found:
        raise _unreadable(path, "An entry of its `collectives` is not whole.")
    return tuple(one for one in found if one is not None)


def with_facts(inventory: Inventory, recorded: Mapping[str, RecordedHost]) -> Inventory:
    """The inventory with what it leaves open filled in from what was found.

    Entries are found by address: a name may have come to mean another machine.
    """
    known = {found.address: found for found in recorded.values()}
    hosts = (_filled(host, known.get(host.service_address)) for host in inventory.hosts)
    return replace(inventory, hosts=tuple(hosts))


def _read(path: Path) -> Mapping[str, object] | None:
    """The document of a facts file; None without one."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"It cannot be read: {why_unreadable(error)}.") from error
    document, problems = read_yaml(text, str(path))
    data = document.data
    if problems or not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
        raise _unreadable(path, "It is no facts file of this release.")
    return data


def _filled(host: InventoryHost, found: RecordedHost | None) -> InventoryHost:
    if found is None:
        return host
    if host.interface_origin == "placeholder" and found.interface:
        host = replace(host, interface=found.interface, interface_origin="facts")
    if not host.rdma_devices and found.rdma_devices:
        host = replace(host, rdma_devices=found.rdma_devices, rdma_origin="facts")
    if host.nvlink_domain is None and found.nvlink_domain:
        host = replace(host, nvlink_domain=found.nvlink_domain, domain_origin="facts")
    return host


def _recorded(path: Path, name: str, entry: object) -> RecordedHost:
    row = entry if isinstance(entry, Mapping) else {}
    rdma, gids, page_size = row.get("rdma_devices"), row.get("gids"), row.get("page_size")
    well_formed = (
        all(isinstance(row.get(key), str) for key in TEXTS)
        and isinstance(rdma, list)
        and isinstance(gids, Mapping)
        and all(type(index) is int for index in gids.values())
        and isinstance(page_size, int)
    )
    if not well_formed:
        raise _unreadable(path, f"The entry of {name} is not whole.")
    return RecordedHost(
        address=str(row["address"]),
        machine_id=str(row["machine_id"]),
        boot_id=str(row["boot_id"]),
        driver=str(row["driver"]),
        interface=str(row["interface"]),
        page_size=page_size if isinstance(page_size, int) else 0,
        rdma_devices=tuple(str(device) for device in rdma or ()),
        gids={str(key): int(str(value)) for key, value in dict(gids or {}).items()},
        nvlink_domain=str(row.get("nvlink_domain") or ""),
    )


def _unreadable(path: Path, what: str) -> StackError:
    return StackError(str(path), what, "Remove it; `fab facts` then writes it again.")
