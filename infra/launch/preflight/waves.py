"""The preflight at work: each host alone in one execution, then host to host, then the accelerators' networks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.inventory.facts_file import RecordedHost
from infra.launch.answering import ask_once, away_of, read_each, refuse_silence
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, Request, ask_all, reports_along
from infra.launch.preflight import ascend, nvidia
from infra.launch.preflight.ascend_checks import ascend_network_hosts
from infra.launch.preflight.asking import (
    asked_commands,
    collective_request,
    commands_request,
    facts_request,
    imex_request,
    listening_request,
    ping_commands,
    weight_folders,
)
from infra.launch.preflight.collectives import COLLECTIVE_S, collective_program, idle_hosts
from infra.launch.preflight.commands import asking_s
from infra.launch.preflight.device_checks import ACS_ID
from infra.launch.preflight.group_collectives.layout import spanning_groups
from infra.launch.preflight.group_collectives.running import run_groups
from infra.launch.preflight.mutual_dials import dial_each_other
from infra.launch.preflight.nvlink_checks import rack_hosts
from infra.launch.preflight.observed import ObservedHost, Told, read_observed
from infra.launch.preflight.ping_peers import ping_peers
from infra.launch.preflight.scene import Depth, Scene
from infra.launch.preflight.table import judge
from infra.launch.unit_states import UnitState, read_units, units_request
from infra.render.dialing import planned_dials
from infra.render.release_record import Release
from infra.render.reserved_ports import RESERVED_PORTS_ID

# AWS's trays need about 45 s to agree after a boot (aws-parallelcluster#6996).
IMEX_S = 60.0
IMEX_PAUSE_S = 3.0
SLACK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """What every host told of itself in one execution.

    Args:
        scene: the hosts, with the deployment's processes that run.
        states: what each host's state check found.
        units: the deployment's units, by process id.
        told: what each host said of its units and groups, as `handover.read_look` reads it.
    """

    scene: Scene
    states: Mapping[str, Report]
    units: Mapping[str, UnitState]
    told: Mapping[str, Report]


def look(
    deployment: Deployment,
    catalog: Catalog,
    depth: Depth,
    recorded: Mapping[str, RecordedHost],
    *,
    states: Mapping[str, Request] | None = None,
) -> FirstLook:
    """Each host alone: one execution of the agent on each, all at the same time.

    With a fleet that leaves out who does not answer (`AnsweringFleet`), here and in `look_further`, the scene says
    who that is.

    Args:
        deployment: the plan and its hosts.
        catalog: what is true of the world.
        depth: how much is asked.
        recorded: what the facts file says, by plan host.
        states: the check of each host's state; None checks what a preflight judges.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    scene = Scene(
        plan=deployment.plan,
        catalog=catalog,
        depth=depth,
        hosts={},
        running=frozenset(),
        recorded=recorded,
        declared=deployment.declared,
    )
    also = {host: _also(deployment, scene, host, states) for host in deployment.states}
    requests = {
        host: _facts(deployment, scene, host, list(asked.values())) for host, asked in also.items()
    }
    sent_s = time.time()
    limit = _looking_s(deployment, scene, requests)
    reports = ask_all(deployment.fleet, requests, timeout_s=limit)
    received_s = time.time()
    observed: dict[str, ObservedHost] = {}
    checked: dict[str, Report] = {}
    units: dict[str, UnitState] = {}
    of_units: dict[str, Report] = {}
    along = read_each(deployment.fleet, reports, reports_along)
    refuse_silence(deployment.fleet)
    for host, rows in along.items():
        told = dict(zip(also[host], rows, strict=True))
        checked[host], of_units[host] = told["state"], told["units"]
        units.update(read_units(host, told["units"], deployment.units().get(host, {})))
        observed[host] = read_observed(
            host, reports[host], sent_s=sent_s, received_s=received_s, also=told
        )
    running = frozenset(process for process, unit in units.items() if unit.is_running)
    return FirstLook(
        scene=replace(scene, hosts=observed, running=running, away=away_of(deployment.fleet)),
        states=checked,
        units=units,
        told=of_units,
    )


def beside(scene: Scene, running: Iterable[str], before: Mapping[str, Release]) -> Scene:
    """The scene beside what is recorded: its running processes make way, or are this plan's.

    Args:
        scene: the first look.
        running: ids of processes that run, of an earlier release too.
        before: the release that is recorded on each host.
    """
    found = frozenset(running)
    ours = {
        host: tuple(process for process in release.processes if process.id in found)
        for host, release in before.items()
    }
    return replace(scene, running=found, ours=ours)


def look_further(deployment: Deployment, scene: Scene, imex_s: float, join_s: float) -> Scene:
    """The scene with what hosts see of each other, and what their accelerators do.

    Args:
        deployment: the plan and its hosts.
        scene: what the first wave found.
        imex_s: how long the nodes of an IMEX domain may take to find each other, in seconds.
        join_s: how long the ranks of a group may take to find each other, in seconds.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    dials = planned_dials(scene.plan)
    if dials:
        deployment.say(f"dialling {len(dials)} ports between {len(scene.plan.hosts)} hosts")
        scene = dial_each_other(deployment, scene, dials)
    if _answering(scene, ascend_network_hosts(scene)):
        scene = _with_away(deployment, replace(scene, pings=_pings(deployment, scene)))
    if rack_hosts(scene):
        scene = _with_away(deployment, replace(scene, imex=_imex(deployment, scene, imex_s)))
    added = _collectives(deployment, scene)
    scene = _with_away(deployment, replace(scene, collectives=added))
    runs = run_groups(deployment, scene, judge(scene), join_s)
    return _with_away(deployment, replace(scene, group_runs=runs))


def _with_away(deployment: Deployment, scene: Scene) -> Scene:
    """The scene with the hosts that have fallen silent meanwhile."""
    return replace(scene, away=away_of(deployment.fleet))


def _answering(scene: Scene, hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(host for host in hosts if host not in scene.away)


def _pings(deployment: Deployment, scene: Scene) -> dict[tuple[str, int, str], Told]:
    """How each device's pings to the same device of peers ended; see `ping_peers`."""
    hosts = _answering(scene, ascend_network_hosts(scene))
    groups = [layout.hosts for layout in spanning_groups(scene.plan)]
    peers = ping_peers(hosts, groups)
    addresses = {host: _device_addresses(scene, host) for host in hosts}
    commands = {
        host: ping_commands(
            scene, host, {peer: _same_devices(addresses[peer], addresses[host]) for peer in named}
        )
        for host, named in peers.items()
    }
    requests = {host: commands_request(pings) for host, pings in commands.items()}
    asking = max(map(asking_s, commands.values()), default=0.0)
    reports = ask_all(deployment.fleet, requests, timeout_s=asking + SLACK_S)
    found: dict[tuple[str, int, str], Told] = {}
    for host, report in reports.items():
        seen = read_observed(host, report, sent_s=0.0, received_s=0.0, also={})
        for name, told in seen.commands.items():
            index, _, where = name.partition(" ")
            found[host, int(index), where] = told
    return found


def _same_devices(theirs: Mapping[int, str], ours: Mapping[int, str]) -> dict[int, str]:
    """The addresses of those devices that have one here, too: another cannot ping."""
    return {index: address for index, address in theirs.items() if index in ours}


def _device_addresses(scene: Scene, host: str) -> dict[int, str]:
    """The addresses of a host's devices on their own network, by index."""
    return {
        index: address
        for index in range(scene.plan.host(host).num_devices)
        if (text := scene.hosts[host].text(f"ascend.address.{index}")) is not None
        and (address := ascend.parse_address(text)) is not None
    }


def _collectives(deployment: Deployment, scene: Scene) -> dict[str, Told]:
    """How a collective over all devices of each host ended, where a test lies there and nobody uses the devices."""
    requests = {
        host: collective_request(scene, host, program)
        for host in _answering(scene, idle_hosts(scene))
        if (program := collective_program(scene, host)) is not None
    }
    if not requests:
        return {}
    deployment.say(f"adding up over all devices of {len(requests)} hosts, each by itself")
    # what a lost connection leaves behind there may hold the devices still
    reports = ask_once(deployment.fleet, requests, timeout_s=COLLECTIVE_S + SLACK_S)
    return {
        host: read_observed(host, report, sent_s=0.0, received_s=0.0, also={}).commands[
            "collective"
        ]
        for host, report in reports.items()
    }


def _imex(deployment: Deployment, scene: Scene, limit_s: float) -> dict[str, str]:
    """The IMEX domain as each host sees it, looked at until every node is ready or time is over.

    With a host that is away nobody waits: its node will not be ready.
    """
    hosts = _answering(scene, rack_hosts(scene))
    latest = {host: scene.hosts[host].text("nvidia.imex") or "" for host in hosts}
    begun = deployment.clock.now()
    while waiting := [host for host in hosts if not _is_ready(latest[host])]:
        if scene.away or deployment.clock.now() - begun > limit_s:
            break
        if all(nvidia.parse_imex(latest[host]) is None for host in waiting):
            break
        deployment.say(f"waiting for the IMEX domain of {', '.join(waiting)}, up to {limit_s:g} s")
        deployment.clock.sleep(IMEX_PAUSE_S)
        requests = {host: imex_request() for host in waiting}
        for host, report in ask_all(deployment.fleet, requests, timeout_s=SLACK_S).items():
            seen = read_observed(host, report, sent_s=0.0, received_s=0.0, also={})
            latest[host] = seen.text("nvidia.imex") or ""
    return latest


def _is_ready(text: str) -> bool:
    domain = nvidia.parse_imex(text)
    return domain is not None and all(state == "READY" for state in domain.nodes.values())


def _facts(
    deployment: Deployment, scene: Scene, host: str, also: Sequence[Mapping[str, object]]
) -> Request:
    """What a host is asked of itself, and how much of its checkpoints is there."""
    sizes = weight_folders(deployment.states[host].items)
    return {**facts_request(scene, host, also), "sizes": sizes}


def _looking_s(deployment: Deployment, scene: Scene, hosts: Iterable[str]) -> float:
    """How long the first look at some hosts may take, in seconds: what is asked along, and all tools that hang."""
    asking = max((asking_s(asked_commands(scene, host).values()) for host in hosts), default=0.0)
    return deployment.limits.ask_s + SLACK_S + asking


def _also(
    deployment: Deployment, scene: Scene, host: str, states: Mapping[str, Request] | None
) -> dict[str, Mapping[str, object]]:
    """What else is asked in the same execution, by operation."""
    return {
        "listening": listening_request(scene, host),
        "state": states[host] if states is not None else _judged_state(deployment, host),
        "units": units_request(
            "status", list(deployment.units().get(host, {})), groups_of=deployment.plan.stack
        ),
    }


def _judged_state(deployment: Deployment, host: str) -> Request:
    """The check of those items of a host's state that a preflight judges."""
    items = [
        item.as_document()
        for item in deployment.states[host].items
        if item.group in ("weights", "images") or item.id in (RESERVED_PORTS_ID, ACS_ID)
    ]
    return {
        "operation": "state",
        "mode": "check",
        "stack": deployment.plan.stack,
        "release": deployment.plan.hash,
        "items": items,
        "recorded_kinds": deployment.states[host].kinds_of("tuning"),
    }
