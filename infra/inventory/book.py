"""Plan hosts matched to inventory hosts, and the address book that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from infra.errors import StackError
from infra.inventory.hosts import HostFacts, Inventory, InventoryHost, NameOrigin
from infra.spec.stack import RoleName

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

    Args:
        wanted: (plan host, first role) in plan order.
        inventory: the hosts that exist.

    Raises:
        StackError: fewer hosts than the plan needs.
    """
    found = serving_hosts(wanted, inventory)
    return {
        name: replace(host, name=name, machine=host.name if host.name != name else None)
        for name, host in found.items()
    }


def serving_hosts(
    wanted: Sequence[tuple[str, str]], inventory: Inventory
) -> dict[str, InventoryHost]:
    """The inventory's host for each plan host, under the inventory's own name.

    A plan host is matched by its name; where the inventory does not use the plan's names, the n-th
    host of the role's group, as the group lists them, serves as `<role>-<n>`.

    Args:
        wanted: (plan host, first role) in plan order.
        inventory: the hosts that exist.

    Raises:
        StackError: fewer hosts than the plan needs.
    """
    named = {host.name: host for host in inventory.hosts}
    if all(name in named for name, _ in wanted):
        return {name: named[name] for name, _ in wanted}
    refuse_other_roles({role for _, role in wanted}, inventory)
    matched: dict[str, InventoryHost] = {}
    taken: set[str] = set()
    members = {role: iter(_members(role, inventory)) for _, role in wanted}
    for name, role in wanted:
        # a host that lies in two groups serves one role
        host = next((host for host in members[role] if host.name not in taken), None)
        if host is None:
            raise _too_few(role, wanted, inventory, len(taken))
        taken.add(host.name)
        matched[name] = host
    return matched


def refuse_other_roles(roles: set[str], inventory: Inventory) -> None:
    """Refuse the inventory of a stack with other roles: its groups say that its hosts serve those.

    Raises:
        StackError: it has groups of roles, and none of them is the stack's.
    """
    grouped = {group for host in inventory.hosts for group in host.groups} & set(get_args(RoleName))
    if grouped and not grouped & roles:
        have, want = " and ".join(sorted(grouped)), " and ".join(sorted(roles))
        what = f"The inventory has hosts for {have}; the stack's role is {want}."
        fix = f"Name the inventory of this stack, or put its hosts under a group {want}."
        raise StackError(f"{inventory.path} groups", what, fix)


def _group(role: str, inventory: Inventory) -> str:
    """The role's own group, or all hosts where the inventory has no such group."""
    return role if any(role in host.groups for host in inventory.hosts) else "all"


def _members(role: str, inventory: Inventory) -> list[InventoryHost]:
    group = _group(role, inventory)
    found = [host for host in inventory.hosts if group == "all" or group in host.groups]
    if group == "all":
        return found
    order = {name: place for place, name in enumerate(inventory.members.get(group, ()))}
    return sorted(found, key=lambda host: order.get(host.name, len(order)))


def _too_few(
    role: str, wanted: Sequence[tuple[str, str]], inventory: Inventory, num_taken: int
) -> StackError:
    group = _group(role, inventory)
    needed = [name for name, of in wanted if of == role or group == "all"]
    have = len(_members(role, inventory))
    free = "" if have < len(needed) else f", of which others take {num_taken}"
    missing = max(len(needed) - have, 1)
    fix = f"Add {missing} host{'s' * (missing > 1)} to the group, or lower the sizes of the stack."
    if role == "edge":
        fix = "Add a group `edge` with one host, or write `edge.host: router`."
    return StackError(
        f"{inventory.path} {group}",
        f"The plan needs {len(needed)} hosts here ({', '.join(needed)}), the inventory has {have}{free}.",
        fix,
    )


def name_origins(book: InventoryAddresses) -> list[str]:
    """Where the names of interfaces and HCAs come from, a line per name and origin."""
    hosts_of: dict[str, list[str]] = {}
    for name, host in book.hosts.items():
        words = _ORIGINS[host.interface_origin].format(what="moe.interface")
        hosts_of.setdefault(f"interface {host.interface}: {words}", []).append(name)
        if host.rdma_devices:
            words = _ORIGINS[host.rdma_origin].format(what="moe.rdma_devices")
            key = f"HCAs {', '.join(host.rdma_devices)}: {words}"
            hosts_of.setdefault(key, []).append(name)
        if host.nvlink_domain is not None:
            words = _ORIGINS[host.domain_origin].format(what="moe.nvlink_domain")
            hosts_of.setdefault(f"NVLink domain {host.nvlink_domain}: {words}", []).append(name)
    return [f"{line} ({', '.join(hosts)})" for line, hosts in hosts_of.items()]


_ORIGINS: Mapping[NameOrigin, str] = {
    "inventory": "{what} of the inventory",
    "facts": "found by `fab facts`",
    "placeholder": "a placeholder: `fab facts` finds the name, or write {what} into the inventory",
}


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
            interface_origin="placeholder",
        )
    return InventoryAddresses(hosts, is_documentation=True)
