"""Replicas placed on devices of hosts: from resolved roles to a `Topology`. Total: it collects problems."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.engines.registry import ENGINES
from infra.engines.settings import RoleSettings
from infra.plan.resolve import Problems, ResolvedStack
from infra.plan.topology import Group, Seat, Topology, TopologyHost
from infra.spec.stack import RoleName

# Ten times the largest fleet that plans are measured for: beyond it a size is a slip of the pen.
MAX_DEVICES = 100_000


@dataclass(slots=True)
class _Host:
    """A host while it is being filled: devices are taken from index 0 upwards."""

    name: str
    settings: RoleSettings
    left: int
    roles: list[RoleName] = field(default_factory=list)
    used: int = 0

    @property
    def free(self) -> int:
        """Devices not yet taken."""
        return self.settings.accelerator.devices_per_host - self.used

    def take(self, count: int, role: RoleName) -> tuple[int, ...]:
        """The next `count` device indices."""
        devices = tuple(range(self.used, self.used + count))
        self.used += count
        if role not in self.roles:
            self.roles.append(role)
        return devices


@dataclass(slots=True)
class _Fleet:
    """Hosts in the order in which they were opened; `shared` lets replicas and roles meet on one.

    Args:
        left: devices of every host that another stack has, the first ones.
    """

    shared: bool
    left: int
    hosts: list[_Host] = field(default_factory=list)
    _num_of_role: dict[RoleName, int] = field(default_factory=dict)
    _first_open: dict[RoleName, int] = field(default_factory=dict)

    def open(self, settings: RoleSettings) -> _Host:
        """A fresh host, named `host-<n>` or `<role>-<n>`."""
        number = self._num_of_role.get(settings.role, 0)
        self._num_of_role[settings.role] = number + 1
        name = f"host-{len(self.hosts)}" if self.shared else f"{settings.role}-{number}"
        host = _Host(name=name, settings=settings, left=self.left, used=self.left)
        self.hosts.append(host)
        return host

    def with_room(self, settings: RoleSettings, count: int) -> _Host | None:
        """The first host that a replica may join; `count` is the same for all replicas of a role.

        Hosts only fill, so those found too full for a role are not looked at again.
        """
        if not self.shared:
            return None
        index = self._first_open.get(settings.role, 0)
        while index < len(self.hosts) and self.hosts[index].free < count:
            index += 1
        self._first_open[settings.role] = index
        return self.hosts[index] if index < len(self.hosts) else None


def build_topology(resolved: ResolvedStack, problems: Problems) -> Topology | None:
    """Place every replica of every role.

    Args:
        resolved: the stack joined with the catalogue.
        problems: receives sizes that cannot be placed, and devices left idle without being declared.

    Returns:
        The topology, or None when a role cannot be placed at all.
    """
    spec = resolved.stack.spec
    shared = spec.placement == "shared"
    _check_shared_accelerators(resolved, problems)
    refused = [_refuse_sizes(settings, spec.leave_devices, problems) for settings in resolved.roles]
    if any(refused):
        return None
    fleet = _Fleet(shared, spec.leave_devices)
    hosts, groups = fleet.hosts, list[Group]()
    for settings in resolved.roles:
        first = len(hosts)
        for replica in range(settings.replicas):
            seats = _place_replica(settings, fleet)
            groups.append(Group(settings=settings, replica=replica, seats=seats))
        if not shared:
            _check_idle(
                f"roles.{settings.role}",
                hosts[first:],
                (settings.devices_idle, settings.replicas),
                problems,
            )
    if shared:
        _check_idle(
            "roles", hosts, (sum(settings.devices_idle for settings in resolved.roles), 1), problems
        )
    return Topology(
        stack=resolved.stack.name,
        platform=spec.platform,
        workload=spec.kubernetes.workload,
        hosts=tuple(
            TopologyHost(
                name=host.name, roles=tuple(host.roles), accelerator=host.settings.accelerator
            )
            for host in hosts
        ),
        groups=tuple(groups),
        has_own_edge=spec.edge is not None and spec.edge.host == "own",
    )


def _refuse_sizes(settings: RoleSettings, left: int, problems: Problems) -> bool:
    """Whether a role can be placed on no host at all; each reason is a problem.

    Args:
        settings: of the role.
        left: devices of every host that another stack has.
        problems: receives the reasons.
    """
    engine = ENGINES[settings.release.engine]
    per_host, unit = settings.accelerator.devices_per_host, engine.unit_devices(settings)
    where, name = f"roles.{settings.role}", settings.accelerator.id
    # SGLang's attention ranks share devices: there may be more of them than devices
    wanted = settings.replicas * max(engine.num_units(settings) * unit, settings.data_parallel)
    if wanted > MAX_DEVICES:
        what = f"The role needs {wanted} devices; at most {MAX_DEVICES} are placed."
        fix = "Correct replicas, data_parallel or the other sizes."
        problems.add("too-many-devices", where, what, fix)
        return True
    if unit <= per_host - left:
        return False
    if left:
        what = f"One rank needs {unit} devices; {name} hosts have {per_host}, {left} of them are left to another stack."
        problems.add(
            "left-devices", "leave_devices", what, f"Leave at most {max(per_host - unit, 0)}."
        )
        return True
    if unit % per_host:
        what = f"One rank needs {unit} devices; {name} hosts have {per_host}, and {unit} is no multiple of it."
        problems.add(
            "uneven-hosts",
            f"{where}.tensor_parallel",
            what,
            f"Use {per_host} or a multiple of {per_host}.",
        )
        return True
    if engine.num_units(settings) > 1:
        hosts, data = unit // per_host, settings.data_parallel
        what = f"One rank needs {unit} devices on {hosts} hosts, and data_parallel is {data}."
        fix = "A rank that spans hosts needs data_parallel: 1; raise `replicas` instead."
        problems.add("spanning-ranks", f"{where}.data_parallel", what, fix)
        return True
    return False


def _check_shared_accelerators(resolved: ResolvedStack, problems: Problems) -> None:
    names = {settings.accelerator.id for settings in resolved.roles}
    if resolved.stack.spec.placement == "shared" and len(names) > 1:
        what = f"placement: shared needs one accelerator for all roles, not {' and '.join(sorted(names))}."
        problems.add("shared-accelerators", "placement", what, "Use placement: dedicated.")


def _place_replica(settings: RoleSettings, fleet: _Fleet) -> tuple[Seat, ...]:
    """The seats of one replica; the fleet opens the hosts that it needs."""
    engine = ENGINES[settings.release.engine]
    unit, units = engine.unit_devices(settings), engine.num_units(settings)
    per_host = settings.accelerator.devices_per_host
    if unit > per_host:
        return _place_over_hosts(settings, fleet, num_nodes=unit // per_host)
    blocks: list[tuple[_Host, tuple[int, ...]]] = []
    current = fleet.with_room(settings, min(unit * units, per_host - fleet.left))
    for _ in range(units):
        if current is None or current.free < unit:
            current = fleet.open(settings)
        blocks.append((current, current.take(unit, settings.role)))
    if engine.has_process_per_unit(settings):
        return _seats_per_rank(blocks)
    return _seats_per_host(blocks, settings)


def _seats_per_rank(blocks: list[tuple[_Host, tuple[int, ...]]]) -> tuple[Seat, ...]:
    nodes = {name: node for node, name in enumerate(dict.fromkeys(host.name for host, _ in blocks))}
    return tuple(
        Seat(
            host=host.name,
            devices=devices,
            ranks=(rank,),
            first_rank=rank,
            node=nodes[host.name],
            is_leader=rank == 0,
        )
        for rank, (host, devices) in enumerate(blocks)
    )


def _seats_per_host(
    blocks: list[tuple[_Host, tuple[int, ...]]], settings: RoleSettings
) -> tuple[Seat, ...]:
    engine = ENGINES[settings.release.engine]
    if engine.num_units(settings) == 1:
        host, devices = blocks[0]
        ranks = tuple(range(settings.data_parallel))
        return (
            Seat(
                host=host.name, devices=devices, ranks=ranks, first_rank=0, node=0, is_leader=True
            ),
        )
    on_host: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for rank, (host, devices) in enumerate(blocks):
        on_host.setdefault(host.name, []).append((rank, devices))
    return tuple(
        Seat(
            host=name,
            devices=tuple(device for _, devices in placed for device in devices),
            ranks=tuple(rank for rank, _ in placed),
            first_rank=placed[0][0],
            node=node,
            is_leader=node == 0,
        )
        for node, (name, placed) in enumerate(on_host.items())
    )


def _place_over_hosts(settings: RoleSettings, fleet: _Fleet, *, num_nodes: int) -> tuple[Seat, ...]:
    """One unit that fills whole hosts."""
    engine = ENGINES[settings.release.engine]
    seats: list[Seat] = []
    for node in range(num_nodes):
        host = fleet.open(settings)
        devices = host.take(settings.accelerator.devices_per_host, settings.role)
        ranks = engine.ranks_on_node(settings, node, num_nodes)
        first = ranks[0] if ranks else 0
        seats.append(
            Seat(
                host=host.name,
                devices=devices,
                ranks=ranks,
                first_rank=first,
                node=node,
                is_leader=node == 0,
            )
        )
    return tuple(seats)


def _check_idle(
    where: str, hosts: list[_Host], declared_by: tuple[int, int], problems: Problems
) -> None:
    """Idle devices must be declared exactly: forgetting four of a rack is expensive.

    Args:
        where: the role, or `roles` when they share hosts.
        hosts: the hosts of these roles.
        declared_by: devices that each replica leaves idle, and the number of replicas.
        problems: receives the difference.
    """
    each, replicas = declared_by
    idle, declared = sum(host.free for host in hosts), each * replicas
    if idle == declared:
        return
    total = sum(host.settings.accelerator.devices_per_host - host.left for host in hosts)
    what = f"{idle} of {total} devices on {len(hosts)} host{'s' * (len(hosts) != 1)} are idle, {declared} are declared."
    field_named = f"{where}.devices_idle" if "." in where else where
    problems.add("idle-devices", field_named, what, _idle_fix(where, idle, replicas))


def _idle_fix(where: str, idle: int, replicas: int) -> str:
    if idle == 0:
        return "Remove devices_idle."
    sizes = "Change the parallel sizes so that they fill the hosts"
    if "." not in where:
        return f"{sizes}, or write devices_idle: {idle} under one role."
    if idle % replicas:
        return f"{sizes}."
    return f"{sizes}, or write devices_idle: {idle // replicas} (per replica)."
