"""Which network interfaces a host of an instance type is launched with."""

from __future__ import annotations

from dataclasses import dataclass

from infra.catalog.instance_types import InstanceType, InterfaceType, LayoutPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInterface:
    """One interface of a launch template: 0-based card and device index, and its kind."""

    card: int
    device: int
    type: InterfaceType

    @property
    def has_address(self) -> bool:
        """Whether it takes an address of the subnet; an `efa-only` interface does not."""
        return self.type != "efa-only"

    @property
    def has_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.type != "interface"


def lay_out_interfaces(
    instance_type: InstanceType, policy: LayoutPolicy
) -> tuple[NetworkInterface, ...]:
    """The interfaces of one host, by card and device; the first is the primary one.

    Every EFA card that the instance type can use at full rate is used under both policies;
    they differ in how many addresses of the subnet a host takes.
    """
    interfaces = (
        NetworkInterface(card=card, device=row.device, type=row.type)
        for row in instance_type.layouts[policy]
        for card in row.cards.indices
    )
    return tuple(sorted(interfaces, key=lambda interface: (interface.card, interface.device)))


def addresses_per_host(interfaces: tuple[NetworkInterface, ...]) -> int:
    """Addresses of the subnet that one host takes."""
    return sum(interface.has_address for interface in interfaces)
