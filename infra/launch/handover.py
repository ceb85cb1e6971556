"""Hands a proven deployment to the watchers of its hosts, and takes it back from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.failures import refuse_not_taken
from infra.launch.fleet import Report, Request, ask_all, reports_along
from infra.launch.proof.probing import ask_reachable
from infra.launch.secret import Secret
from infra.launch.supervision import (
    FAILED,
    MEETS,
    RUNS,
    GroupState,
    arm_request,
    groups_request,
    holding_hosts,
    new_watch_key,
    read_groups,
    tell_watchers,
    watch_keys,
    watched_hosts,
)
from infra.launch.unit_states import UnitState, read_units, units_request
from infra.render.supervision import groups_of, plan_watch_port

# Watchers speak twice a second; this covers hosts that are busy loading.
MEET_S = 15.0
# So long hosts of rank 0 wait by themselves before they answer: nobody asks meanwhile, and they tell at once.
AWAIT_S = 2.0
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A deployment as its hosts have it.

    Args:
        units: by process id.
        groups: by name, of hosts that remember any.
        watched: hosts whose watcher runs, and was handed their groups.
        holding: hosts whose watcher would act on what it remembers of before.
        hosts: those that should be watched.
        keys: what tells the keys of the watchers apart, by host that is watched.
    """

    units: Mapping[str, UnitState]
    groups: Mapping[str, GroupState]
    watched: frozenset[str]
    holding: frozenset[str]
    hosts: frozenset[str]
    keys: Mapping[str, str]

    @property
    def is_watched(self) -> bool:
        """Whether every host with a rank is, by watchers that understand each other."""
        return self.hosts <= self.watched and self.has_one_key

    @property
    def has_one_key(self) -> bool:
        """Whether the watchers that run have the key of one hand-over."""
        return len(set(self.keys.values())) <= 1

    @property
    def left_out(self) -> tuple[str, ...]:
        """The groups that the router was told to send nothing."""
        return tuple(name for name, state in self.groups.items() if state.left_out)


def look_at(deployment: Deployment) -> Look:
    """All units and groups, in one execution on each host."""
    reports = ask_reachable(deployment, look_requests(deployment), deployment.limits.ask_s)
    return read_look(deployment, reports)


def look_requests(deployment: Deployment, *, await_s: float = 0.0) -> dict[str, Request]:
    """What each host with units is asked for a look.

    Args:
        deployment: whose.
        await_s: how long each host of rank 0 waits first until the watchers of its groups have met.
    """
    stack, awaiting = deployment.plan.stack, _awaiting(deployment, await_s)
    return {
        host: {**units_request("status", list(names), groups_of=stack), **awaiting.get(host, {})}
        for host, names in deployment.units().items()
    }


def read_look(deployment: Deployment, reports: Mapping[str, Report]) -> Look:
    """A deployment as its hosts have it, by their answers to `look_requests`."""
    units = deployment.units()
    return Look(
        units={
            process: state
            for host, report in reports.items()
            for process, state in read_units(host, report, units[host]).items()
        },
        groups=read_groups(reports.values()),
        watched=frozenset(watched_hosts(reports)),
        holding=frozenset(holding_hosts(reports)),
        hosts=frozenset(deployment.units("engine")),
        keys=watch_keys(reports),
    )


def hand_over(deployment: Deployment, key: Secret) -> None:
    """Have every host with a rank watch it from now on, with a key that all hosts of the stack get.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    request = arm_request(deployment.plan.stack, key)
    hosts, limit = deployment.units("engine"), deployment.limits.ask_s
    ask_all(deployment.fleet, dict.fromkeys(hosts, request), timeout_s=limit)


def open_up(
    deployment: Deployment, engines: Mapping[str, UnitState], asks: Sequence[Request] = ()
) -> tuple[Look, Sequence[Report]]:
    """Start the router, and have every host with a rank watch it, in one execution on each host.

    Args:
        deployment: whose ranks are proven.
        engines: their units, as they were seen last: from now on watchers look at them.
        asks: what the router's host is asked along, behind the router's state.

    Returns:
        What the hosts say when the watchers of every group have met, and the reports on `asks`.

    Raises:
        HostsFailed: a host cannot be asked.
        NotReady: systemd does not take the router's start, they have not met in time, or a group has failed meanwhile.
    """
    begun, stack = deployment.clock.now(), deployment.plan.stack
    awaiting, watching = _awaiting(deployment, AWAIT_S), deployment.units("engine")
    routers = deployment.units("router")
    requests: dict[str, Request] = {}
    arm, status = arm_request(stack, new_watch_key()), groups_request("status", stack)
    for host in deployment.units():
        arming = {**(arm if host in watching else status), **awaiting.get(host, {})}
        requests[host] = arming
        if host in routers:  # it looks at its endpoints while the watchers meet
            names = list(routers[host])
            further = [arming, *asks, units_request("status", names)]
            requests[host] = {**units_request("start", names), "also": further}
    limit = deployment.limits.ask_s
    reports = ask_all(deployment.fleet, requests, timeout_s=limit)
    armed, units, asked = dict(reports), dict(engines), list[Report]()
    for host, known in routers.items():
        armed[host], *asked, seen = reports_along(host, reports[host])
        units.update(found := read_units(host, seen, known))
        refuse_not_taken(deployment, {host: reports[host]}, found.values())
    look = replace(read_look(deployment, armed), units=units)
    return _met(deployment, look, begun), asked


def take_back(deployment: Deployment) -> None:
    """Have no host watch: from now on nothing but this command starts or stops a rank.

    What watchers remember of before is over: they take over what runs when they are handed it again.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    hold_watchers(deployment)
    hosts, limit = deployment.units("engine"), deployment.limits.ask_s
    tell_watchers(deployment.fleet, hosts, "disarm", deployment.plan.stack, timeout_s=limit)


def hold_watchers(deployment: Deployment) -> None:
    """Have watchers look on and speak with each other, and act no more.

    All of them do before the first one ends: one that was not reached would else take the hosts of the others for lost,
    and stop ranks that serve.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    hosts, limit = deployment.units("engine"), deployment.limits.ask_s
    tell_watchers(deployment.fleet, hosts, "hold", deployment.plan.stack, timeout_s=limit)


def _awaiting(deployment: Deployment, await_s: float) -> dict[str, dict[str, object]]:
    """What makes each host of a rank 0 wait for its groups' watchers before it answers, by host."""
    led: dict[str, list[str]] = {}
    for group, processes in groups_of(deployment.plan).items() if await_s else ():
        led.setdefault(processes[0].host, []).append(group)
    return {host: {"awaits": groups, "await_s": await_s} for host, groups in led.items()}


def _met(deployment: Deployment, look: Look, begun: float) -> Look:
    """The look at which the watchers of every group have met: this one, or one behind it."""
    wanted = groups_of(deployment.plan)
    while True:
        for state in look.groups.values():
            if state.phase == FAILED:
                raise _not_watched(deployment, state.group, state.words)
        open_groups = [
            name for name in wanted if name not in look.groups or look.groups[name].phase != RUNS
        ]
        if not open_groups:
            return look
        if deployment.clock.now() - begun > MEET_S:
            raise _not_watched(
                deployment, open_groups[0], _why_unmet(deployment, look, open_groups[0])
            )
        deployment.clock.sleep(PAUSE_S)
        asking = look_requests(deployment, await_s=AWAIT_S)
        reports = ask_reachable(deployment, asking, deployment.limits.ask_s)
        look = read_look(deployment, reports)


def _why_unmet(deployment: Deployment, look: Look, group: str) -> str:
    """Which host has not been heard of, and where it has to reach."""
    processes = groups_of(deployment.plan)[group]
    leader = deployment.plan.host(processes[0].host)
    state = look.groups.get(group)
    port = plan_watch_port(deployment.plan)
    if state is not None and state.phase != MEETS:
        return state.words
    if state is None or not state.unmet:
        missing = sorted(look.hosts - look.watched) or [leader.name]
        return f"the watcher of {', '.join(missing)} does not run"
    return (
        f"the watcher of {', '.join(state.unmet)} has not reached {leader.name} "
        f"({leader.address}:{port}) within {MEET_S:g} s"
    )


def _not_watched(deployment: Deployment, group: str, why: str) -> NotReady:
    stack = deployment.plan.stack
    fix = (
        f"`journalctl -u moe-{stack}-watch` on its hosts says what it tried; open the port between them, "
        f"then run `fab up --stack {stack}` again: it goes on from what it finds."
    )
    what = f"Every rank serves, but nobody would restart it: {why}."
    return NotReady(group, what, fix)
