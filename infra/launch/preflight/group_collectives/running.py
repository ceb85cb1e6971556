"""The collectives of groups at work: each group that can add up does, and what its hosts say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.launch.answering import ask_once, names_of
from infra.launch.deployment import Deployment
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.group_collectives.layout import GroupLayout, rounds, spanning_groups
from infra.launch.preflight.group_collectives.ready import what_stops
from infra.launch.preflight.group_collectives.starting import COMMAND, collective_command
from infra.launch.preflight.observed import Told, read_observed
from infra.launch.preflight.scene import GroupRun, Scene

SLACK_S = 60.0


def run_groups(
    deployment: Deployment, scene: Scene, findings: Sequence[Finding], join_s: float
) -> dict[str, GroupRun]:
    """The collective of every group that spans hosts, by group.

    Args:
        deployment: the plan and its hosts.
        scene: what all waves before found.
        findings: what was judged of it.
        join_s: seconds that ranks have until all of a group have met.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    layouts = spanning_groups(scene.plan)
    stopped = {layout.group: what_stops(scene, layout, findings) for layout in layouts}
    runs = {group: run for group, run in stopped.items() if run is not None}
    for together in rounds([layout for layout in layouts if layout.group not in runs]):
        runs |= _run_round(deployment, scene, together, join_s)
    return runs


def _run_round(
    deployment: Deployment, scene: Scene, layouts: Sequence[GroupLayout], join_s: float
) -> dict[str, GroupRun]:
    """Groups without a common host, all at the same time."""
    for layout in layouts:
        where = f"the {layout.num_ranks} devices of {layout.group} on {len(layout.hosts)} hosts"
        cost = f"half a minute, {join_s:g} s where a host does not join"
        deployment.say(f"adding up over {where}, with the engine's own torch ({cost})")
    commands = {
        member.host: collective_command(scene, layout, member, join_s)
        for layout in layouts
        for member in layout.members
    }
    requests = {
        host: {"operation": "facts", "commands": [command.as_document()]}
        for host, command in commands.items()
    }
    longest = max(command.timeout_s for command in commands.values())
    reports = ask_once(deployment.fleet, requests, timeout_s=longest + SLACK_S)
    told = {
        host: read_observed(host, report, sent_s=0.0, received_s=0.0, also={}).commands[COMMAND]
        for host, report in reports.items()
    }
    return {layout.group: _run_of(layout, told) for layout in layouts}


def _run_of(layout: GroupLayout, told: Mapping[str, Told]) -> GroupRun:
    """The run of one group; without the word of one of its hosts nothing can be said of it."""
    silent = [host for host in layout.hosts if host not in told]
    if silent:
        return GroupRun(told={}, why_not=f"{names_of(silent)} fell silent meanwhile")
    return GroupRun(told={host: told[host] for host in layout.hosts})
