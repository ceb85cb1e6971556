"""Who holds the port that a process could not bind: a neighbour that listens in the wrong place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from infra.launch.deployment import Deployment
from infra.launch.proof.probing import ask_reachable
from infra.launch.unit_states import UnitState, own_reason
from infra.plan.process import Process

_IN_USE = re.compile(r"address already in use|port \d+ is already in use", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misplaced:
    """A process of ours that listens on another one's port instead of its own."""

    process: str
    port: int
    own_port: int
    victim: str


def find_misplaced(deployment: Deployment, units: Mapping[str, UnitState]) -> Misplaced | None:
    """The neighbour that took the port of a process which ended for want of it, None when it was not one of ours.

    Args:
        deployment: whose plan says which port is whose.
        units: the latest states by process, with logs of those that have ended.
    """
    for process in deployment.engines():
        state = units.get(process.id)
        if state is None or not state.has_ended or not _IN_USE.search(own_reason(state.log_tail)):
            continue
        found = _without_own_port(deployment, process, units)
        if found is not None:
            return found
    return None


def _without_own_port(
    deployment: Deployment, victim: Process, units: Mapping[str, UnitState]
) -> Misplaced | None:
    """The one running neighbour whose own port nobody listens on, while the victim's is taken."""
    neighbours = {
        port: process
        for process in deployment.engines()
        if process.host == victim.host and (port := _http_port(process)) is not None
    }
    request = {"operation": "listening", "ports": sorted(neighbours)}
    reports = ask_reachable(deployment, {victim.host: request}, deployment.limits.ask_s)
    rows = reports.get(victim.host, {}).get("listening")
    taken = {row.get("port") for row in rows} if isinstance(rows, list) else set()
    wanted = _http_port(victim)
    silent = [
        (port, process.id)
        for port, process in neighbours.items()
        if port not in taken and process.id in units and units[process.id].is_running
    ]
    if wanted not in taken or wanted is None or len(silent) != 1:
        return None
    own_port, culprit = silent[0]
    return Misplaced(process=culprit, port=wanted, own_port=own_port, victim=victim.id)


def _http_port(process: Process) -> int | None:
    return next((bind.port for bind in process.binds if bind.name == "http"), None)
