"""Hands a proven deployment to the watchers of its hosts, and takes it back from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, Request, ask_until_known, reports_along
from infra.launch.proof.probing import ask_reachable
from infra.launch.supervision import (
    FAILED,
    MEETS,
    RUNS,
    GroupState,
    groups_request,
    read_groups,
    tell_watchers,
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
        watched: hosts whose watcher runs.
        hosts: those that should be watched.
    """

    units: Mapping[str, UnitState]
    groups: Mapping[str, GroupState]
    watched: frozenset[str]
    hosts: frozenset[str]

    @property
    def is_watched(self) -> bool:
        """Whether every host with a rank is."""
        return self.hosts <= self.watched

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
    stack = deployment.plan.stack
    led: dict[str, list[str]] = {}
    for group, processes in groups_of(deployment.plan).items() if await_s else ():
        led.setdefault(processes[0].host, []).append(group)
    return {
        host: {
            **units_request("status", list(names), groups_of=stack),
            **({"awaits": led[host], "await_s": await_s} if host in led else {}),
        }
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
        hosts=frozenset(deployment.units("engine")),
    )


def hand_over(deployment: Deployment) -> None:
    """Have every host with a rank watch it from now on.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    hosts = deployment.units("engine")
    limit = deployment.limits.ask_s
    tell_watchers(deployment.fleet, hosts, "arm", deployment.plan.stack, timeout_s=limit)


def open_up(deployment: Deployment) -> Look:
    """Start the router, and have every host with a rank watch it, in one execution on each host.

    Returns:
        What the hosts say when the watchers of every group have met.

    Raises:
        HostsFailed: a host cannot be asked.
        NotReady: they have not met in time, or a group has failed meanwhile.
    """
    begun = deployment.clock.now()
    arming = groups_request("arm", deployment.plan.stack)
    starting = {
        host: units_request("start", list(names))  # it looks at its endpoints meanwhile
        for host, names in deployment.units("router").items()
    }
    watching = deployment.units("engine")
    requests: dict[str, Request] = {}
    for host, looking in look_requests(deployment, await_s=AWAIT_S).items():
        first, *others = [
            *([starting[host]] if host in starting else []),
            *([arming] if host in watching else []),
            looking,
        ]
        requests[host] = {**first, "also": others}
    limit = deployment.limits.ask_s
    reports = ask_until_known(deployment.fleet, requests, timeout_s=limit)
    looks = {host: reports_along(host, report)[-1] for host, report in reports.items()}
    return _met(deployment, read_look(deployment, looks), begun)


def take_back(deployment: Deployment) -> None:
    """Have no host watch: from now on nothing but this command starts or stops a rank.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    hosts = deployment.units("engine")
    limit = deployment.limits.ask_s
    tell_watchers(deployment.fleet, hosts, "disarm", deployment.plan.stack, timeout_s=limit)


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
