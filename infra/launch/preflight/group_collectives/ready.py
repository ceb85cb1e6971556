"""Whether a group can add up now, and what to do first where it cannot; pure."""

from __future__ import annotations

from collections.abc import Iterable

from infra.launch.answering import names_of
from infra.launch.preflight.device_checks import awaited_devices
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.group_collectives.layout import GroupLayout
from infra.launch.preflight.group_collectives.starting import runtime_item
from infra.launch.preflight.scene import GroupRun, Scene

# What these say against a host has nothing to do with how its devices add up.
UNRELATED = ("weights-staged", "weights-room")


def what_stops(scene: Scene, layout: GroupLayout, findings: Iterable[Finding]) -> GroupRun | None:
    """Why a group is not asked to add up; None when nothing speaks against it.

    Args:
        scene: the hosts as they were looked at.
        layout: the group.
        findings: all that was judged of the scene: what blocks a host of the group comes first.
    """
    again = f"`fab preflight --stack {scene.plan.stack}`"
    away = [host for host in layout.hosts if host in scene.away]
    if away:
        return _stopped(f"{names_of(away)} cannot be asked", f"Mend that, then {again}")
    for member in layout.members:
        if not set(member.devices) <= set(awaited_devices(scene, member.host)):
            down = f"`fab down --stack {scene.plan.stack}`, then {again}"
            return _stopped(f"engines run on {member.host}", down)
    checks = [
        one.check
        for one in findings
        if one.severity == "block" and one.host in layout.hosts and one.check not in UNRELATED
    ]
    if checks:
        names = ", ".join(dict.fromkeys(checks))
        return _stopped(f"{names} blocks a host of it", f"Mend that, then {again}")
    item = runtime_item(scene, layout)
    absent = [host for host in layout.hosts if not _is_there(scene, host, item)]
    if absent:
        said = f"{item.partition(':')[2]} is not on {', '.join(absent)}"
        return _stopped(said, f"Bring it there, or let `fab up` bring it; then {again}")
    if layout.port is None:
        said = "no command line of it names a port at which its hosts meet"
        return _stopped(
            said, "Nothing can be done; `fab verify` reads the transport that it takes."
        )
    return None


def _stopped(why: str, first: str) -> GroupRun:
    return GroupRun(told={}, why_not=why, first=first)


def _is_there(scene: Scene, host: str, item: str) -> bool:
    row = scene.hosts[host].items.get(item)
    return row is not None and row.get("state") == "ok"
