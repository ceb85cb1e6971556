"""Which devices of which hosts add up together, who is rank 0, and where the others find it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.plan.process import Plan, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The part of a group that lies on one host.

    Args:
        first_rank: of its devices; ranks go by host, and on a host by device in the order of processes.
        devices: indices on the host, one rank each.
        process: the group's first process there, whose runtime and environment the ranks get.
    """

    host: str
    first_rank: int
    devices: tuple[int, ...]
    process: Process

    @property
    def ranks(self) -> range:
        """The ranks of this host."""
        return range(self.first_rank, self.first_rank + len(self.devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """A group that spans hosts.

    Args:
        group: `<role>/<replica>`.
        members: by host in plan order, rank 0's first.
        address: where rank 0 listens, by the plan's interface.
        port: of that address; None where no command line of the group names one that its other hosts dial.
    """

    group: str
    members: tuple[Member, ...]
    address: str
    port: int | None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in rank order."""
        return tuple(member.host for member in self.members)

    @property
    def num_ranks(self) -> int:
        """One for each device of the group."""
        return sum(len(member.devices) for member in self.members)

    def member_of(self, rank: int) -> Member:
        """Who has a rank."""
        return next(member for member in self.members if rank in member.ranks)

    def place(self, rank: int) -> str:
        """Where a rank is, in words: `rank 9 (unified-1, device 1)`."""
        member = self.member_of(rank)
        return f"rank {rank} ({member.host}, device {member.devices[rank - member.first_rank]})"


def spanning_groups(plan: Plan) -> tuple[GroupLayout, ...]:
    """Every group with devices on several hosts, in plan order."""
    groups: dict[str, list[Process]] = {}
    for process in plan.processes:
        if process.kind == "engine":
            groups.setdefault(process.group, []).append(process)
    layouts = (_layout(plan, group, members) for group, members in groups.items())
    return tuple(layout for layout in layouts if len(layout.members) > 1)


def rounds(layouts: Sequence[GroupLayout]) -> tuple[tuple[GroupLayout, ...], ...]:
    """The groups in as many rounds as it takes that no host has two of them at a time."""
    found: list[list[GroupLayout]] = []
    for layout in layouts:
        free = (one for one in found if not any({*other.hosts} & {*layout.hosts} for other in one))
        chosen = next(free, None)
        if chosen is None:
            found.append([layout])
        else:
            chosen.append(layout)
    return tuple(map(tuple, found))


def _layout(plan: Plan, group: str, processes: Sequence[Process]) -> GroupLayout:
    members: list[Member] = []
    next_rank = 0
    for host in dict.fromkeys(process.host for process in processes):
        own = [process for process in processes if process.host == host]
        devices = tuple(dict.fromkeys(index for process in own for index in process.devices))
        members.append(Member(host=host, first_rank=next_rank, devices=devices, process=own[0]))
        next_rank += len(devices)
    return GroupLayout(
        group=group,
        members=tuple(members),
        address=plan.host(processes[0].host).address,
        port=_meeting_port(processes),
    )


def _meeting_port(processes: Sequence[Process]) -> int | None:
    """The port at rank 0's host that the group's other hosts will dial.

    It is in a reserved block, nobody listens there before the engines start (`ports-free`), and that the other hosts
    reach it is looked at, too (`peer-ports`).
    """
    host = processes[0].host
    at_first = {process.id for process in processes if process.host == host}
    dialled = (
        connect.port
        for process in processes
        if process.host != host
        for connect in process.connects
        if connect.to in at_first
    )
    return next(dialled, None)
