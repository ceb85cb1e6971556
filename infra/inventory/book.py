"""Plan hosts matched to inventory hosts, and the address book that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.errors import StackError
from infra.inventory.hosts import HostFacts, Inventory, InventoryHost

# RFC 5737 for documentation; RFC 2544's benchmarking range when a plan has more hosts than it holds.
_MAX_DOCUMENTATION_HOSTS = 200


@dataclass(frozen=True, slots=True)
class InventoryAddresses:
    """The address book of hosts that exist: a constant per host."""

    hosts: Mapping[str, InventoryHost]
    is_documentation: bool = False

    def address(self, of: str, *, seen_from: str) -> str:
        """The service address, the same from everywhere."""
        del seen_from
        return self.hosts[of].service_address

    def facts(self, host: str) -> HostFacts:
        """Address, interface and HCAs of a host."""
        entry = self.hosts[host]
        return HostFacts(
            address=entry.service_address,
            interface=entry.interface,
            rdma_devices=entry.rdma_devices,
        )


def match_hosts(
    wanted: Sequence[tuple[str, str]], inventory: Inventory
) -> dict[str, InventoryHost]:
    """The inventory's host for each plan host; the result carries the plan's name.

    A plan host is matched by its name; where the inventory does not use the plan's names, the n-th
    host of the role's group serves as `<role>-<n>`.

    Args:
        wanted: (plan host, first role) in plan order.
        inventory: the hosts that exist.

    Raises:
        StackError: fewer hosts than the plan needs.
    """
    names = [name for name, _ in wanted]
    if all(inventory.host(name) for name in names):
        return {name: host for name in names if (host := inventory.host(name))}
    matched: dict[str, InventoryHost] = {}
    used: dict[str, int] = {}
    for name, role in wanted:
        group = role if any(role in host.groups for host in inventory.hosts) else "all"
        members = [host for host in inventory.hosts if group == "all" or group in host.groups]
        index = used.get(group, 0)
        used[group] = index + 1
        if index >= len(members):
            needed = [host for host, of in wanted if of == role or group == "all"]
            have = len(members)
            raise StackError(
                f"{inventory.path} {group}",
                f"The plan needs {len(needed)} hosts here ({', '.join(needed)}), the inventory has {have}.",
                f"Add {len(needed) - have} hosts to the group, or lower the sizes of the stack.",
            )
        matched[name] = replace(members[index], name=name)
    return matched


def documentation_hosts(names: Sequence[str]) -> InventoryAddresses:
    """Addresses for a plan without an inventory: 192.0.2.0/24, or 198.18.0.0/15 for many hosts."""
    hosts = {}
    for index, name in enumerate(names, start=1):
        address = f"192.0.2.{index}"
        if len(names) > _MAX_DOCUMENTATION_HOSTS:
            address = f"198.{18 + (index >> 16)}.{(index >> 8) & 255}.{index & 255}"
        hosts[name] = InventoryHost(
            name=name,
            groups=(),
            address=address,
            service_address=address,
            port=22,
            user=None,
            private_key_file=None,
            ssh_arguments=(),
            host_key=None,
            interface="eth0",
            rdma_devices=(),
            instance_id=None,
        )
    return InventoryAddresses(hosts, is_documentation=True)
