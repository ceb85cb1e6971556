"""Processes of a foreign file put side by side on hosts, and gathered into groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.engines.reading import Reading
from infra.inventory.book import documentation_hosts
from infra.plan.foreign.seats import Seat
from infra.plan.foreign.source import Recipe

# Ports that all processes of a group meet at.
MEETINGS = ("dp_rpc", "master", "dist")


@dataclass(slots=True)
class Draft:
    """A host while processes are put on it."""

    key: str
    seats: list[Seat] = field(default_factory=list)
    is_closed: bool = False


@dataclass(slots=True)
class Team:
    """A group while its processes are gathered; `name` is the format's, None when it gives none."""

    role: str
    name: str | None
    seats: list[Seat] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether as many ranks as it has, and every node, are there; some may be there twice."""
        ranks = [rank for seat in self.seats for rank in seat.reading.dp_ranks]
        size = max(seat.reading.group_size for seat in self.seats)
        nodes = {node_of(seat.reading)[0] for seat in self.seats}
        spans = max(node_of(seat.reading)[1] for seat in self.seats)
        return len(ranks) >= size and len(nodes) >= spans


def node_of(reading: Reading) -> tuple[int, int]:
    """(node, number of nodes) of a process whose ranks span hosts; (0, 1) for one that does not."""
    layout = reading.extra.get("parallel") or reading.extra.get("layout")
    count = int(getattr(layout, "num_nodes", 1))
    return (int(getattr(layout, "node", 0)), count) if count > 1 else (0, 1)


def local_devices(seat: Seat) -> int:
    """Devices that a process takes."""
    layout = seat.reading.extra.get("parallel") or seat.reading.extra.get("layout")
    return int(getattr(layout, "local_devices", 1))


def put_on_hosts(engines: Sequence[Seat], routers: Sequence[Seat]) -> list[Draft]:
    """Processes on hosts: where the format says, else side by side until something forbids it."""
    drafts: list[Draft] = []
    by_name: dict[str, Draft] = {}
    for index, seat in enumerate(engines):
        if seat.launch.host is not None:
            draft = by_name.get(seat.launch.host)
            if draft is None:
                draft = by_name[seat.launch.host] = Draft(seat.launch.host)
                drafts.append(draft)
        elif drafts and not _needs_own_host(seat, drafts[-1]):
            draft = drafts[-1]
        else:
            draft = Draft(f"#{index}")
            drafts.append(draft)
        draft.seats.append(seat)
        draft.is_closed = draft.is_closed or seat.launch.blocks
    for index, seat in enumerate(routers):
        draft = next((d for d in drafts if d.key == seat.launch.host), drafts[0])
        if draft.key != seat.launch.host and draft.is_closed:
            draft = Draft(f"#router{index}")
            drafts.append(draft)
        draft.seats.append(seat)
    return drafts


def _needs_own_host(seat: Seat, draft: Draft) -> bool:
    """Whether a process cannot be meant to run beside those of a host."""
    if draft.is_closed or (
        seat.launch.container is not None and seat.launch.container.has_own_network
    ):
        return True
    node, num_nodes = node_of(seat.reading)
    for other in draft.seats:
        if num_nodes > 1 and node_of(other.reading) != (node, num_nodes):
            return True
        if seat.address and other.address and seat.address != other.address:
            return True
        # a follower says where it stands; its leader has a host's devices already
        if seat.reading.flags.get("data-parallel-start-rank") and other.role == seat.role:
            return True
    return False


def gather_teams(engines: Sequence[Seat]) -> list[Team]:
    """Groups: the format's, else each leader with the followers that its sizes leave room for."""
    teams: list[Team] = []
    for seat in engines:
        fitting = [team for team in teams if _belongs(seat, team)]
        if fitting:
            meeting = (team for team in fitting if _meets(seat, team))
            next(meeting, fitting[0]).seats.append(seat)
        else:
            teams.append(Team(seat.role, seat.launch.group, [seat]))
    return teams


def _belongs(seat: Seat, team: Team) -> bool:
    if team.role != seat.role or team.name != seat.launch.group:
        return False
    if team.name is not None:
        return True
    first = team.seats[0].reading
    own = seat.reading
    size, nodes = own.group_size, node_of(own)[1]
    if size == 1 and nodes == 1:
        return False
    if seat.is_layout_open or any(other.is_layout_open for other in team.seats):
        return False
    # whatever else two processes are told: at one address and port they wait for each other
    is_alike = (first.group_size, node_of(first)[1]) == (size, nodes) and (
        first.flags.get("model") == own.flags.get("model")
    )
    if not (is_alike or _meets(seat, team)):
        return False
    at = {node_of(other.reading)[0] for other in team.seats}
    return (nodes == 1 or node_of(own)[0] not in at) and _has_place(seat, team)


def _has_place(seat: Seat, team: Team) -> bool:
    """Whether a team has not got the ranks of a process."""
    own = seat.reading
    taken = {rank for other in team.seats for rank in other.reading.dp_ranks}
    # at one place, what holds some of the same ranks is misplaced; what holds no others is another way to start them
    are_free = not taken & set(own.dp_ranks)
    return are_free or (_meets(seat, team) and not set(own.dp_ranks) <= taken)


def _meets(seat: Seat, team: Team) -> bool:
    """Whether a process and the first one of a team name one address and port to meet at."""
    place = meeting_place(seat.reading)
    return place is not None and place == meeting_place(team.seats[0].reading)


def meeting_place(reading: Reading) -> tuple[str, int] | None:
    """The address and port of rank 0 that a process is told; None where its command line names no address."""
    flags = reading.flags
    named = flags.get("data-parallel-address") or flags.get("master-addr")
    address = str(named or flags.get("dist-init-addr") or "")
    if named is None:
        address = address.rpartition(":")[0]
    ports = [d.port for d in reading.dials if d.name in MEETINGS]
    ports += [b.port for b in reading.binds if b.name in MEETINGS]
    return (address, ports[0]) if address and ports else None


def name_hosts(drafts: Sequence[Draft]) -> dict[str, str]:
    """`<role>-<n>`, or `host-<n>` where several roles share one."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for draft in drafts:
        roles = {seat.role for seat in draft.seats if seat.kind == "engine"} or {"router"}
        stem = roles.pop() if len(roles) == 1 else "host"
        names[draft.key] = f"{stem}-{counts.get(stem, 0)}"
        counts[stem] = counts.get(stem, 0) + 1
    return names


def address_hosts(
    drafts: Sequence[Draft], names: Mapping[str, str], recipe: Recipe
) -> tuple[dict[str, str], frozenset[str]]:
    """Host name → address, and the hosts whose address comes from the file."""
    book = documentation_hosts([names[draft.key] for draft in drafts])
    found: dict[str, str] = {}
    known: set[str] = set()
    for draft in drafts:
        host = names[draft.key]
        told = recipe.addresses.get(draft.key) or next(
            (s.address for s in draft.seats if s.address), None
        )
        if told is not None:
            known.add(host)
        found[host] = told or book.address(host, seen_from=host)
    return found, frozenset(known)
