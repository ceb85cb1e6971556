"""Machines that run, whoever launched them: instances of a program, and the nodes that groups have launched.

They share what there is of both kinds: a reservation's instances, a subnet's addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice

from infra.rehearsal.cloud.kind import network
from infra.rehearsal.cloud.store import Resource, Store

# Of every subnet: AWS, VPC User Guide, "Subnet CIDR blocks".
_RESERVED_IN_FRONT, _RESERVED_AT_END = 4, 1
_WINDOW = 250  # addresses are spread over the first so many of a subnet, so that they read easily
_HIDDEN = "machines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine.

    Args:
        reservation: id of what it runs in, "" where it runs in none.
        addresses: those that it holds of its subnet, the primary interface's first.
    """

    id: str
    subnet_id: str
    reservation: str
    addresses: list[str]
    tags: Mapping[str, str]


def hidden_machines(machines: list[Machine]) -> dict[str, object]:
    """What a resource hides that has launched these machines."""
    return {_HIDDEN: [asdict(each) for each in machines]}


def machines_of(resource: Resource) -> list[Machine]:
    """The machines that a resource has launched."""
    rows = resource.hidden.get(_HIDDEN)
    return [Machine(**row) for row in rows] if isinstance(rows, list) else []


def running_machines(store: Store, *, without: Resource | None = None) -> list[Machine]:
    """All machines of the account, without those of one resource."""
    return [
        machine
        for resource in store.all()
        if resource is not without
        for machine in machines_of(resource)
    ]


def num_free(subnet: Resource, running: list[Machine]) -> int:
    """How many addresses of a subnet no machine holds."""
    return _room(subnet) - len(_taken(subnet, running))


def free_addresses(subnet: Resource, running: list[Machine], wanted: int, digits: str) -> list[str]:
    """Addresses of a subnet that no machine holds; fewer than wanted where they run out.

    Args:
        subnet: with its block.
        running: machines, of any subnet.
        wanted: how many.
        digits: hexadecimal; where to begin.
    """
    room, taken = _room(subnet), _taken(subnet, running)
    first = int(digits, 16) % min(room, _WINDOW)
    lowest = int(_block(subnet).network_address) + _RESERVED_IN_FRONT
    every = (str(ipaddress.IPv4Address(lowest + (first + step) % room)) for step in range(room))
    return list(islice((each for each in every if each not in taken), wanted))


def _block(subnet: Resource) -> ipaddress.IPv4Network:
    return network(str(subnet.inputs["cidrBlock"]), "InvalidSubnet.Range")


def _room(subnet: Resource) -> int:
    return _block(subnet).num_addresses - _RESERVED_IN_FRONT - _RESERVED_AT_END


def _taken(subnet: Resource, running: list[Machine]) -> set[str]:
    return {
        address for each in running if each.subnet_id == subnet.id for address in each.addresses
    }
