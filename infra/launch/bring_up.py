"""Brings a deployment up: all engines in one window, proof of every rank, then the router and the edge."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.draining import draining
from infra.launch.edge import open_edge
from infra.launch.failures import refuse_not_taken
from infra.launch.fleet import ask_all
from infra.launch.handover import Look, look_at, open_up, take_back
from infra.launch.installation import install
from infra.launch.preflight.closed_ports import closed_ports
from infra.launch.preflight.gate import Gate
from infra.launch.progress import clock_text
from infra.launch.proof.host_drift import not_as_installed
from infra.launch.proof.rank import Verdict
from infra.launch.proof.router import ask_through, first_try
from infra.launch.readiness import Readiness
from infra.launch.secret import Secret
from infra.launch.supervision import GroupState
from infra.launch.unit_states import UnitState, read_units, units_request
from infra.plan.endpoints import RankEndpoint
from infra.plan.process import Process
from infra.render.host_paths import watch_unit
from infra.render.units import STOP_S

MAX_NAMED = 3
# So long the router's host waits for an answer through it before it tells that there is none yet.
ROUTER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What came up.

    Args:
        units: state by process id, router and edge included.
        proofs: what proved each rank.
        through_router: what proved the router, None without one.
        groups: each group as its watchers have it, by name.
    """

    units: Mapping[str, UnitState]
    proofs: Mapping[RankEndpoint, Verdict]
    through_router: str | None
    groups: Mapping[str, GroupState]


def bring_up(
    deployment: Deployment,
    secrets: Mapping[str, Secret],
    *,
    tunes: bool,
    replaces: bool = False,
    gate: Gate | None = None,
) -> Served:
    """Install and start a deployment, and prove that it serves.

    What is there already is left as it is: brought up again after an interruption, it goes on.
    Groups of another release that run are stopped and replaced only when that is asked for (`replaces`).

    Raises:
        PrerequisiteError: something that must be there first is not; nothing was changed.
        HostsFailed: a host failed.
        NotReady: a process ended, or was not ready in time.
    """
    look = install(deployment, secrets, tunes=tunes, replaces=replaces, gate=gate)
    return start(deployment, secrets, look, gate)


def start(
    deployment: Deployment,
    secrets: Mapping[str, Secret],
    look: Look | None = None,
    gate: Gate | None = None,
) -> Served:
    """Start what is installed, and prove that it serves; see `bring_up`.

    A failure also says what on the hosts is not as it was installed: somebody may have changed it since. And which
    ports peers cannot dial: engines only say that somebody did not come.

    Args:
        deployment: the plan and its hosts.
        secrets: the stack's secrets by name.
        look: the deployment as its hosts have it, None where nobody has looked.
        gate: who was judged before, and is asked about ports; None for nobody.
    """
    try:
        return _start_and_prove(deployment, look or look_at(deployment))
    except NotReady as error:
        also = _also(deployment, secrets, gate)
        if not also:
            raise
        raise NotReady(error.where, " ".join((error.what, *also)), error.fix) from error


def _also(deployment: Deployment, secrets: Mapping[str, Secret], gate: Gate | None) -> list[str]:
    """What on the hosts or between them may be the reason for a failure, in sentences."""
    installed = not_as_installed(deployment, secrets)
    closed = closed_ports(deployment, gate.catalog) if gate is not None else []
    lines = [f"Not as installed: {', '.join(installed[:MAX_NAMED])}."] if installed else []
    return lines + [f"{line}." for line in closed[:MAX_NAMED]]


def _start_and_prove(deployment: Deployment, found: Look) -> Served:
    begun = deployment.clock.now()
    found_running = _make_ready(deployment, found)
    units = _start_engines(deployment)
    deployment.say(_what_was_started(units.values(), found_running))
    readiness = Readiness(deployment, begun=begun, units=units)
    proofs = readiness.wait()
    took = clock_text(deployment.clock.now() - begun)
    deployment.say(f"every one of {len(proofs)} ranks has generated a token, after {took}")
    router, answer = deployment.endpoints.router, None
    if router is None:
        look, _ = open_up(deployment, readiness.units)
    else:
        first = first_try(deployment, router, ROUTER_S)
        look, (tried,) = open_up(deployment, readiness.units, [first])
        answer = ask_through(deployment, router, tried)
        deployment.say(f"a request went through the router: {answer}")
    if any(unit.active_state != "active" for unit in look.units.values()):
        look = look_at(deployment)  # it was seen before it had started
    told = draining(deployment)
    if told is not None and look.left_out:
        told.join(look.left_out, look.left_out)
        look = look_at(deployment)
    edge, states = deployment.endpoints.edge, look.units
    if edge is not None:
        states = {**states, **open_edge(deployment, edge)}
    return Served(units=states, proofs=proofs, through_router=answer, groups=look.groups)


def _make_ready(deployment: Deployment, look: Look) -> set[str]:
    """What runs whole and is watched is left alone; anything else is taken from the watchers, and its parts stopped.

    Watchers that were stopped or disabled remember what they watched last, and would end what is started now.

    Returns:
        The processes that run, and are left running.
    """
    engines = deployment.engines()
    is_whole = look.is_watched and all(look.units[process.id].is_running for process in engines)
    if look.holding and not is_whole:
        take_back(deployment)
        look = look_at(deployment)
    stopped = set() if is_whole else _stop_parts(deployment, look.units)
    return {process.id for process in engines if look.units[process.id].is_running} - stopped


def _stop_parts(deployment: Deployment, states: Mapping[str, UnitState]) -> set[str]:
    """Stop what is left of groups of which a part has ended: a rank that starts alone hangs the others.

    Returns:
        The processes that were stopped.
    """
    groups: dict[str, list[Process]] = {}
    for process in deployment.engines():
        groups.setdefault(process.group, []).append(process)
    left: set[str] = set()
    for group, members in groups.items():
        running = [process.id for process in members if states[process.id].is_running]
        if running and len(running) < len(members):
            missing = next(process.id for process in members if process.id not in running)
            deployment.say(f"{group} starts again as one: {missing} has ended")
            left |= set(running)
    requests = {
        host: {**units_request("stop", names), "timeout_s": STOP_S}
        for host, units in deployment.units("engine").items()
        if (names := [unit for unit, process in units.items() if process in left])
    }
    limit = STOP_S + deployment.limits.ask_s
    ask_all(deployment.fleet, requests, timeout_s=limit)
    return left


def _start_engines(deployment: Deployment) -> dict[str, UnitState]:
    """Start all engines on every host at the same time; their states by process.

    Watchers start beside them and stand by: when every rank is proven they have been loaded for long.

    Raises:
        NotReady: systemd does not take a start.
    """
    units = deployment.units("engine")
    watcher = {"beside": [watch_unit(deployment.plan.stack)]}
    requests = {
        host: {**units_request("start", list(names)), **watcher} for host, names in units.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    states = {
        process: state
        for host, report in reports.items()
        for process, state in read_units(host, report, units[host]).items()
    }
    refuse_not_taken(deployment, reports, states.values())
    return states


def _what_was_started(units: Collection[UnitState], found_running: Collection[str]) -> str:
    """How many engine processes were started, and how many run since before.

    Args:
        units: of all engines.
        found_running: the processes that were left running.
    """
    hosts = {unit.host for unit in units if unit.process not in found_running}
    started = f"started {len(units) - len(found_running)} engine processes on {len(hosts)} hosts"
    if not found_running:
        return started
    left = f"{len(found_running)} engine processes run already and are left running"
    return f"{started}; {left}" if hosts else left
