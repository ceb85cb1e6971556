"""Hosts listen where engines will, and dial each other: who is asked for what, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from infra.launch.answering import ask_once, away_of, names_of
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, Request
from infra.launch.preflight.reach_report import read_reached
from infra.launch.preflight.scene import Scene
from infra.render.dialing import PlannedDial

# How long so many hosts dial each other at most. Each further one is asked later, for its request is packed here, and
# is dialled by the others.
REACH_S, REACH_HOSTS, FURTHER_HOST_S = 6.0, 32, 0.05
# What an agent's start and end may take beside it.
SLACK_S = 60.0


def dial_each_other(deployment: Deployment, scene: Scene, dials: Sequence[PlannedDial]) -> Scene:
    """The scene with what became of the dials; those that are not tried are named in it.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    requests = reach_requests(scene, _open_dials(scene, dials), deployment.nonce)
    reports = ask_reach(deployment, requests)
    scene = replace(scene, away=away_of(deployment.fleet))
    done = _open_dials(scene, dials)
    tried = set(done)
    left = tuple(dial for dial in dials if dial not in tried)
    silent = [dial for dial in left if not _is_between_answering(scene, dial)]
    if silent:
        deployment.say(f"{len(silent)} ports of or from {names_of(scene.away)} are not dialled")
    if len(left) > len(silent):
        deployment.say(f"{len(left) - len(silent)} ports of engines that load are not dialled")
    return replace(scene, reached=replace(read_reached(done, reports), undialled=left))


def reach_requests(scene: Scene, dials: Sequence[PlannedDial], token: str) -> dict[str, Request]:
    """Who listens where, and who dials what, by host; pure.

    A port on which somebody listens already is dialled without a word: it is an engine's.
    """
    taken = _taken_ports(scene)
    requests: dict[str, Request] = {}
    loaded: set[tuple[str, str]] = set()
    callers: dict[str, dict[int, list[str]]] = {}
    asked: dict[str, list[dict[str, object]]] = {}
    address = {host.name: host.address for host in scene.plan.hosts}
    for dial in dials:
        speaks = (dial.host, dial.port) not in taken
        loads = speaks and (dial.caller, dial.host) not in loaded
        if speaks:
            callers.setdefault(dial.host, {}).setdefault(dial.port, []).append(dial.caller)
        if loads:
            loaded.add((dial.caller, dial.host))
        asked.setdefault(dial.caller, []).append(
            {
                "to": dial.host,
                "address": address[dial.host],
                "port": dial.port,
                "speaks": speaks,
                "loads": loads,
            }
        )
    meeting = [host for host in address if host in callers or host in asked]
    for host in meeting:
        listened = sorted(callers.get(host, {}).items())
        requests[host] = {
            "operation": "reach",
            "name": host,
            "token": token,
            "address": address[host],
            "limit_s": reaching_s(len(meeting)),
            "listen": [{"port": port, "callers": names} for port, names in listened],
            "dial": asked.get(host, []),
        }
    return requests


def ask_reach(deployment: Deployment, requests: Mapping[str, Request]) -> dict[str, Report]:
    """What became of the listeners and dials of `reach_requests`, by host; given as long as these may take.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    limit = reaching_s(len(requests)) + SLACK_S
    return ask_once(deployment.fleet, requests, timeout_s=limit)


def _open_dials(scene: Scene, dials: Sequence[PlannedDial]) -> tuple[PlannedDial, ...]:
    """Those dials of which both ends answer, and no engine is about to open the port itself: ours would end it."""
    taken = _taken_ports(scene)
    return tuple(
        one
        for one in dials
        if _is_between_answering(scene, one)
        and not (
            one.purpose == "planned"
            and one.process in scene.running
            and (one.host, one.port) not in taken
        )
    )


def _is_between_answering(scene: Scene, dial: PlannedDial) -> bool:
    return not {dial.caller, dial.host} & set(scene.away)


def _taken_ports(scene: Scene) -> set[tuple[str, int]]:
    """Host and port of those planned ports on which somebody listens."""
    return {
        (host, int(str(row["port"])))
        for host, seen in scene.hosts.items()
        for row in seen.listening
    }


def reaching_s(num_hosts: int) -> float:
    """How long hosts dial each other at most, in seconds."""
    return REACH_S + FURTHER_HOST_S * max(0, num_hosts - REACH_HOSTS)
