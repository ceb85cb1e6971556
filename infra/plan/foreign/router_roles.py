"""Which engine of a foreign file is prefill and which is decode, where a router's or proxy's line alone says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from infra.plan.foreign.places import meeting_place
from infra.plan.foreign.seats import Seat, is_address
from infra.plan.foreign.source import Recipe

ROLES = ("prefill", "decode")
_Listed = tuple[str, str, int | None]
"""Role, host and port of one endpoint."""


def with_listed_roles(seats: Sequence[Seat], recipe: Recipe) -> list[Seat]:
    """The processes of a file, those without a role of their own in that which its routers list them under.

    An endpoint is a process's by its address, by a name that others reach it by, or by its port where all endpoints
    that are left with that port have one role. Followers have the role of the process that they meet.
    """
    listed = [one for seat in seats if seat.kind == "router" for one in _listed(seat)]
    if {role for role, _, _ in listed} != set(ROLES):
        return list(seats)
    found = list(seats)
    left = set(listed)
    for index, seat in enumerate(found):
        if _takes_role(seat):
            known = [one for one in listed if _is_at(seat, one, recipe)]
            left -= set(known)
            found[index] = _in_role(seat, {role for role, _, _ in known})
        elif seat.kind == "engine" and seat.role in ROLES:
            left -= {one for one in listed if _is_at(seat, one, recipe)}
    for index, seat in enumerate(found):
        if _takes_role(seat) and _address(seat, recipe) is None:
            port = seat.reading.http_port
            roles = {role for role, host, other in left if other == port and _may_be_any(host)}
            found[index] = _in_role(seat, roles)
    return _followers(found)


def _followers(seats: Sequence[Seat]) -> list[Seat]:
    """Processes that serve no HTTP, in the role of the one whose address and port or group they name."""
    of_place: dict[object, str] = {}
    for seat in seats:
        if seat.kind == "engine" and seat.role in ROLES:
            places = (meeting_place(seat.reading), seat.launch.group)
            of_place.update({place: seat.role for place in places if place is not None})
    found = []
    for seat in seats:
        role = of_place.get(meeting_place(seat.reading)) or of_place.get(seat.launch.group)
        is_open = seat.kind == "engine" and seat.role == "unified" and role is not None
        found.append(replace(seat, role=str(role)) if is_open else seat)
    return found


def _takes_role(seat: Seat) -> bool:
    return seat.kind == "engine" and seat.role == "unified" and seat.reading.http_port is not None


def _in_role(seat: Seat, roles: set[str]) -> Seat:
    return replace(seat, role=next(iter(roles))) if len(roles) == 1 else seat


def _listed(router: Seat) -> Iterator[_Listed]:
    for role in ROLES:
        urls = router.reading.flags.get(role)
        for url in urls if isinstance(urls, tuple) else ():
            try:
                parts = urlsplit(str(url) if "://" in str(url) else f"http://{url}")
                yield role, parts.hostname or "", parts.port
            except ValueError:
                continue


def _is_at(seat: Seat, one: _Listed, recipe: Recipe) -> bool:
    """Whether an endpoint is a process's by its address and port, or by a name of its container."""
    _, host, port = one
    is_port = port is None or port == seat.reading.http_port
    names = seat.launch.container.names if seat.launch.container else ()
    if host == _address(seat, recipe):
        return is_port
    # a service of a cluster may listen on another port than its pods
    return host in names or host.partition(".")[0] in names


def _address(seat: Seat, recipe: Recipe) -> str | None:
    return seat.address or recipe.addresses.get(seat.launch.host or "")


def _may_be_any(host: str) -> bool:
    """Whether a host is one that the file does not name otherwise: an address, or this host itself."""
    return is_address(host) or host in ("localhost", "0.0.0.0") or host.startswith("127.")  # noqa: S104
