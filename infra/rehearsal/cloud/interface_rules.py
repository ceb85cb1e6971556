"""Which network-interface layouts EC2 launches.

Source: AWS, EC2 User Guide, "EFA and network cards" (`efa-acc-inst-types`), checked 2026-11-20; at most one
EFA device per card as aws/karpenter-provider-aws enforces it (designs/efa-for-static-capacity.md@1d92708).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.rehearsal.cloud.machine_facts import MachineFacts

_TYPES = ("interface", "efa", "efa-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInterface:
    """One interface of a launch request."""

    card: int
    device: int
    type: str
    wants_public_address: bool

    @property
    def place(self) -> str:
        """Card and device for messages."""
        return f"network card {self.card}, device index {self.device}"

    @property
    def has_address(self) -> bool:
        """Whether it takes an address of its subnet."""
        return self.type != "efa-only"

    @property
    def has_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.type in {"efa", "efa-only"}


def read_interfaces(rows: object) -> tuple[LaunchInterface, ...]:
    """The interfaces of a launch template's `networkInterfaces`; what is not said is card 0, device 0."""
    return tuple(
        LaunchInterface(
            card=int(row.get("networkCardIndex") or 0),
            device=int(row.get("deviceIndex") or 0),
            type=str(row.get("interfaceType") or "interface"),
            wants_public_address=str(row.get("associatePublicIpAddress")).lower() == "true",
        )
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping)
    )


def layout_refusals(machine: MachineFacts, interfaces: Sequence[LaunchInterface]) -> Iterator[str]:
    """A sentence for everything that makes a layout impossible on an instance type."""
    yield from _primary_refusals(interfaces)
    yield from _place_refusals(machine, interfaces)
    yield from _efa_refusals(machine, interfaces)
    with_address = sum(each.has_address for each in interfaces)
    if with_address > 1 and any(each.wants_public_address for each in interfaces):
        yield "associatePublicIpAddress cannot be specified when launching with multiple network interfaces"


def _primary_refusals(interfaces: Sequence[LaunchInterface]) -> Iterator[str]:
    primary = [each for each in interfaces if (each.card, each.device) == (0, 0)]
    if not primary:
        yield "The primary network interface (network card 0, device index 0) is required"
    if any(each.type == "efa-only" for each in primary):
        yield "An efa-only interface cannot be the primary network interface"


def _place_refusals(machine: MachineFacts, interfaces: Sequence[LaunchInterface]) -> Iterator[str]:
    for place, count in Counter((each.card, each.device) for each in interfaces).items():
        if count > 1:
            yield f"Network card {place[0]}, device index {place[1]} is specified {count} times"
    for each in interfaces:
        if each.type not in _TYPES:
            yield f"Value ({each.type}) for parameter interfaceType is invalid"
        if not 0 <= each.card < machine.num_cards:
            yield f"{machine.name} has {machine.num_cards} network cards; card {each.card} does not exist"
        elif not 0 <= each.device < machine.interfaces_per_card:
            limit = machine.interfaces_per_card
            yield f"Network card {each.card} of {machine.name} takes {limit} interfaces; {each.place} exceeds it"
        elif each.card in machine.efa_only_cards and each.has_address:
            yield f"Network card {each.card} of {machine.name} supports efa-only interfaces alone"


def _efa_refusals(machine: MachineFacts, interfaces: Sequence[LaunchInterface]) -> Iterator[str]:
    on_card = Counter(each.card for each in interfaces if each.has_efa)
    for card, count in on_card.items():
        if card not in machine.efa_cards:
            yield f"Network card {card} of {machine.name} does not support EFA"
        elif count > 1:
            yield f"Network card {card} carries one EFA device; {count} are specified"
