"""Another machine under a host's name: the smallest edit of an inventory's text, comments and order kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import yaml

from infra.errors import ProblemsFound, StackError
from infra.inventory.ansible_file import parse_inventory
from infra.inventory.hosts import Inventory, InventoryHost
from infra.inventory.variable_files import NOTHING_BESIDE, VariableFiles

# Facts of one machine that a bare address does not bring along.
_OWN_FACTS = ("moe", "ansible_port", "ansible_user", "ansible_ssh_common_args")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An inventory in which another machine stands under a host's name.

    Args:
        text: of the whole file.
        inventory: that text read.
        gone: the machine that stood there before.
        words: what was written, in words.
    """

    text: str
    inventory: Inventory
    gone: InventoryHost
    words: str


def replace_machine(
    text: str, file: str, old: str, new: str, beside: VariableFiles = NOTHING_BESIDE
) -> Edit:
    """The edit that puts a machine in the place of a host.

    Args:
        text: the inventory.
        file: its name for messages.
        old: the host whose name stays.
        new: another host of the inventory (the two exchange their variables, so that the machine that leaves is
            listed under the other's name), or an address.
        beside: variables that lie beside the file, which is all that is edited.

    Raises:
        StackError: it cannot be edited so; the message says what to write.
    """
    inventory = parse_inventory(text, file, beside)
    gone = inventory.host(old)
    spare = next(
        (h for h in inventory.hosts if new in {h.name, h.address, h.service_address}), None
    )
    if gone is None:
        names = ", ".join(host.name for host in inventory.hosts)
        raise StackError(file, f"There is no host {old}.", f"The inventory has {names}.")
    if spare == gone:
        raise StackError(file, f"{new} is {old} itself.", "Name another machine.")
    wanted = _as_if_there(gone, new) if spare is None else replace(spare, name=old)
    edited = (
        _with_address(text, file, gone, new)
        if spare is None
        else _exchanged(text, file, old, spare.name)
    )
    try:
        after = parse_inventory(edited, file, beside)
    except ProblemsFound as error:
        raise StackError(file, f"{new} cannot stand for {old}: {error.what}", error.fix) from error
    found = after.host(old)
    if found is None or replace(found, groups=()) != replace(wanted, groups=()):
        raise _by_hand(file, old, new, "its groups give them different variables")
    words = f"{old} is {found.address} now" + (f", {spare.name} is {gone.address}" if spare else "")
    return Edit(text=edited, inventory=after, gone=gone, words=words)


def _as_if_there(gone: InventoryHost, address: str) -> InventoryHost:
    return replace(gone, address=address, service_address=address)


def _with_address(text: str, file: str, gone: InventoryHost, new: str) -> str:
    """The text with one `ansible_host` written anew."""
    value = _only_value(text, file, gone.name, new)
    own = {str(key.value): node for key, node in value.value}
    facts = [name for name in _OWN_FACTS if name in own]
    if facts or "ansible_host" not in own:
        reason = f"it has {', '.join(facts)} of its own" if facts else "it has no ansible_host"
        raise _by_hand(file, gone.name, new, reason)
    node = own["ansible_host"]
    return text[: node.start_mark.index] + new + text[node.end_mark.index :]


def _exchanged(text: str, file: str, old: str, new: str) -> str:
    """The text with the variables of two hosts exchanged."""
    one, other = _only_value(text, file, old, new), _only_value(text, file, new, old)
    flow = (bool(one.flow_style), bool(other.flow_style))
    if flow[0] != flow[1] or (not flow[0] and one.start_mark.column != other.start_mark.column):
        raise _by_hand(file, old, new, "they are written in different styles")
    first, second = sorted([_span(one), _span(other)])
    return (
        text[: first[0]]
        + text[second[0] : second[1]]
        + text[first[1] : second[0]]
        + text[first[0] : first[1]]
        + text[second[1] :]
    )


def _only_value(text: str, file: str, host: str, other: str) -> yaml.MappingNode:
    """The variables that one host has of its own."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    values = [node for name, node in _hosts_of(root) if name == host]
    maps = [node for node in values if isinstance(node, yaml.MappingNode)]
    if len(maps) != 1:
        reason = f"{host} has no variables of its own" if values else f"{host} is one of a range"
        if len(maps) > 1:
            reason = f"{host} has variables in {len(maps)} places"
        raise _by_hand(file, host, other, reason)
    return maps[0]


def _hosts_of(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """Every entry under a `hosts:`, wherever it stands."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == "hosts" and isinstance(value, yaml.MappingNode):
            yield from ((str(name.value), inner) for name, inner in value.value)
        elif key.value != "vars":
            yield from _hosts_of(value)


def _span(node: yaml.Node) -> tuple[int, int]:
    """Where a node stands; a block map ends with its last value, not with the comments behind it."""
    last = node
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index


def _by_hand(file: str, old: str, new: str, reason: str) -> StackError:
    what = f"{new} cannot be written in the place of {old} by itself: {reason}."
    fix = (
        f"Write the new machine's variables (ansible_host, what it has under moe) under {old} and keep that name, "
        "then run `fab up --replace`; `fab down` clears the old machine, with an inventory that lists it."
    )
    return StackError(file, what, fix)
