"""Engine processes of a topology: ports allocated, commands spelt, and every derived field read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from infra.catalog.flags import FlagCatalogue
from infra.engines.contract import Engine, GroupContext, PortName, PortRequest, ProcessContext
from infra.engines.reading import Reading
from infra.engines.settings import RoleSettings
from infra.inventory.hosts import AddressBook, HostFacts
from infra.plan.command import (
    Command,
    GroupCommand,
    RoleCommand,
    spell_group,
    spell_process,
    spell_role,
)
from infra.plan.ports import PortAllocator, allocate_group
from infra.plan.process import Connect, Process
from infra.plan.topology import Group, Seat, Topology
from infra.spec.stack import RoleName


class _Group(NamedTuple):
    """What the processes of a group have in common."""

    name: str
    context: GroupContext
    command: GroupCommand


@dataclass(slots=True, kw_only=True)
class _Spelt:
    """A process whose command is written and read back; its dials still wait for the other processes."""

    id: str
    group: _Group
    host: str
    address: str
    command: Command
    reading: Reading


@dataclass(slots=True, kw_only=True)
class EngineCompiler:
    """Compiles groups one after the other.

    Args:
        engine: how to speak.
        flags: the catalogue of the pinned release.
        book: where hosts are.
        peers: settings of every role.
        allocator: ports taken so far.
        client_port: the HTTP port of the only endpoint, None when a router stands in front.
        num_devices: devices per host name.
    """

    engine: Engine
    flags: FlagCatalogue
    book: AddressBook
    peers: Mapping[RoleName, RoleSettings]
    allocator: PortAllocator
    client_port: int | None
    num_devices: Mapping[str, int]
    _commands: dict[RoleName, RoleCommand] = field(default_factory=dict)
    _facts: dict[str, HostFacts] = field(default_factory=dict)
    _num_on_host: dict[str, int] = field(default_factory=dict)

    def compile_all(self, topology: Topology) -> list[tuple[Process, Reading]]:
        """Every engine process, in plan order, with its connects resolved to process ids; and how it is read."""
        found: list[_Spelt] = []
        for index, group in enumerate(topology.groups):
            found.extend(self._compile_group(group, index))
        owners = {
            (spelt.address, bind.port): spelt.id for spelt in found for bind in spelt.reading.binds
        }
        return [(_process(spelt, owners), spelt.reading) for spelt in found]

    def _compile_group(self, group: Group, index: int) -> list[_Spelt]:
        shared, own = allocate_group(self.allocator, group, self._requests(group))
        leader = group.seats[0].host
        context = GroupContext(
            settings=group.settings,
            replica=group.replica,
            index=index,
            num_nodes=len(group.hosts),
            leader_address=self.book.address(leader, seen_from=leader),
            ports=shared,
            peers=self.peers,
        )
        spelt = _Group(
            name=group.name,
            context=context,
            command=spell_group(
                self._role_command(group.settings), self.engine.group_part(context)
            ),
        )
        return [self._compile_seat(spelt, seat, own[i]) for i, seat in enumerate(group.seats)]

    def _requests(self, group: Group) -> dict[int, tuple[PortRequest, ...]]:
        num_nodes = len(group.hosts)
        asked: dict[tuple[int, bool], tuple[PortRequest, ...]] = {}
        for seat in group.seats:
            key = (len(seat.ranks), seat.is_leader)
            if key not in asked:
                asked[key] = self.engine.port_requests(
                    group.settings, num_nodes=num_nodes, local_ranks=key[0], is_leader=key[1]
                )
        return {i: asked[len(seat.ranks), seat.is_leader] for i, seat in enumerate(group.seats)}

    def _compile_seat(self, group: _Group, seat: Seat, ports: dict[PortName, int]) -> _Spelt:
        if self.client_port is not None and "http" in ports:
            ports = {**ports, "http": self.client_port}
        facts, num_devices = self._facts_of(seat.host), self.num_devices[seat.host]
        own = self.engine.own_part(
            ProcessContext(
                group=group.context,
                facts=facts,
                ports=ports,
                devices=seat.devices,
                host_devices=num_devices,
                ranks=seat.ranks,
                first_rank=seat.first_rank,
                node=seat.node,
                is_leader=seat.is_leader,
            )
        )
        command = spell_process(group.command, own, facts)
        reading = self.engine.read(
            command.argv, command.env, num_devices=num_devices, flags=self.flags
        )
        number = self._num_on_host.get(seat.host, 0)
        self._num_on_host[seat.host] = number + 1
        return _Spelt(
            id=f"{seat.host}/{number}",
            group=group,
            host=seat.host,
            address=self.book.address(seat.host, seen_from=seat.host),
            command=command,
            reading=reading,
        )

    def _facts_of(self, host: str) -> HostFacts:
        if host not in self._facts:
            self._facts[host] = self.book.facts(host)
        return self._facts[host]

    def _role_command(self, settings: RoleSettings) -> RoleCommand:
        if settings.role not in self._commands:
            self._commands[settings.role] = spell_role(
                self.engine, settings, self.peers, self.flags
            )
        return self._commands[settings.role]


def _process(spelt: _Spelt, owners: Mapping[tuple[str, int], str]) -> Process:
    """A dial that nobody answers keeps its bare address, for the checks to find."""
    group, reading, command = spelt.group, spelt.reading, spelt.command
    connects = tuple(
        Connect(
            name=d.name, to=owners.get((d.address, d.port), f"{d.address}:{d.port}"), port=d.port
        )
        for d in reading.dials
    )
    port = reading.http_port
    return Process(
        id=spelt.id,
        kind="engine",
        group=group.name,
        host=spelt.host,
        role=group.context.settings.role,
        replica=group.context.replica,
        dp_ranks=reading.dp_ranks,
        devices=reading.devices,
        endpoint=None if port is None else f"http://{spelt.address}:{port}",
        binds=reading.binds,
        connects=connects,
        env=command.env,
        env_prepend=command.env_prepend,
        mounts=group.command.role.mounts,
        argv=command.argv,
        flag_origins=command.flag_origins,
        env_origins=command.env_origins,
    )
