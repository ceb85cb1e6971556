"""Which host will dial which port of which other host, read from the plan; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.plan.ports import EPHEMERAL_FIRST, EPHEMERAL_LAST
from infra.plan.process import Plan, Process
from infra.render.supervision import plan_watch_port

Purpose = Literal["planned", "sampled"]

# KV transfer: a decode process dials these of a prefill process, and no argument vector names the pair
# (NIXL's handshake on the side channel, Mooncake's on `kv` and `bootstrap`; facts: engines 2.3).
KV_BINDS = ("side_channel", "kv", "bootstrap")
# Mooncake's transfer engine takes its rpc port at random from here (facts: mooncake documents).
MOONCAKE_FIRST, MOONCAKE_LAST = 15000, 17000
SAMPLES_PER_HOST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDial:
    """One port of one host that another host will dial.

    Args:
        caller: the host that dials.
        host: the host that listens.
        port: its port.
        name: what it is for: the bind's name, or the range that the sample stands for.
        process: who listens there; the first of several.
        purpose: `sampled` ports stand for a range in which an engine chooses one at start.
    """

    caller: str
    host: str
    port: int
    name: str
    process: str
    purpose: Purpose


def planned_dials(plan: Plan) -> tuple[PlannedDial, ...]:
    """Every dial between two hosts, each (caller, host, port) once, in plan order."""
    found: dict[tuple[str, str, int], PlannedDial] = {}
    taken = _taken_ports(plan)
    for dial in (*_connects(plan), *_transfers(plan), *_watches(plan), *_samples(plan, taken)):
        if dial.caller != dial.host:
            found.setdefault((dial.caller, dial.host, dial.port), dial)
    return tuple(found.values())


def _connects(plan: Plan) -> Iterator[PlannedDial]:
    """What the processes' own command lines tell them to dial."""
    host_of = {process.id: process.host for process in plan.processes}
    for process in plan.processes:
        for connect in process.connects:
            if connect.to in host_of:
                yield PlannedDial(
                    caller=process.host,
                    host=host_of[connect.to],
                    port=connect.port,
                    name=connect.name,
                    process=connect.to,
                    purpose="planned",
                )


def _transfers(plan: Plan) -> Iterator[PlannedDial]:
    """The KV ports of every prefill process, from every decode host."""
    callers = tuple(dict.fromkeys(p.host for p in plan.processes if p.role == "decode"))
    for process in plan.processes:
        if process.role != "prefill":
            continue
        for bind in process.binds:
            if bind.name not in KV_BINDS:
                continue
            for port in range(bind.port, bind.port + bind.count):
                for caller in callers:
                    yield PlannedDial(
                        caller=caller,
                        host=process.host,
                        port=port,
                        name=bind.name,
                        process=process.id,
                        purpose="planned",
                    )


def _watches(plan: Plan) -> Iterator[PlannedDial]:
    """The port of the host of each group's rank 0, where the members' watchers ask for the group's state."""
    leaders: dict[str, Process] = {}
    for process in plan.processes:
        if process.kind == "engine":
            leader = leaders.setdefault(process.group, process)
            yield PlannedDial(
                caller=process.host,
                host=leader.host,
                port=plan_watch_port(plan),
                name="watch",
                process=leader.id,
                purpose="planned",
            )


def _samples(plan: Plan, taken: dict[str, set[int]]) -> Iterator[PlannedDial]:
    """Ports where engines choose one at start: inside each group, and between the roles with Mooncake."""
    groups: dict[str, list[Process]] = {}
    for process in plan.processes:
        if process.kind == "engine":
            groups.setdefault(process.group, []).append(process)
    for members in groups.values():
        hosts = {process.host: process.id for process in reversed(members)}
        yield from _between(hosts, hosts, (EPHEMERAL_FIRST, EPHEMERAL_LAST), taken, "ephemeral")
    if any(speaks_mooncake(process) for process in plan.processes):
        roles = {
            role: {p.host: p.id for p in reversed(plan.processes) if p.role == role}
            for role in ("prefill", "decode")
        }
        span = (MOONCAKE_FIRST, MOONCAKE_LAST)
        yield from _between(roles["decode"], roles["prefill"], span, taken, "mooncake-rpc")
        yield from _between(roles["prefill"], roles["decode"], span, taken, "mooncake-rpc")


def _between(
    callers: dict[str, str],
    hosts: dict[str, str],
    span: tuple[int, int],
    taken: dict[str, set[int]],
    name: str,
) -> Iterator[PlannedDial]:
    for host, process in hosts.items():
        for port in sample_ports(host, span, taken.get(host, set())):
            for caller in callers:
                yield PlannedDial(
                    caller=caller,
                    host=host,
                    port=port,
                    name=name,
                    process=process,
                    purpose="sampled",
                )


def sample_ports(host: str, span: tuple[int, int], taken: set[int]) -> tuple[int, ...]:
    """A few ports of a range, far apart, the same for the same host, clear of planned ones."""
    first, last = span
    width = (last - first + 1) // SAMPLES_PER_HOST
    shift = sum(ord(letter) * (place + 1) for place, letter in enumerate(host)) * 37
    found = []
    for part in range(SAMPLES_PER_HOST):
        port = first + part * width + shift % width
        while port in taken:
            port += 1
        found.append(port)
    return tuple(found)


def _taken_ports(plan: Plan) -> dict[str, set[int]]:
    taken: dict[str, set[int]] = {}
    for process in plan.processes:
        for bind in process.binds:
            taken.setdefault(process.host, set()).update(range(bind.port, bind.port + bind.count))
    return taken


def speaks_mooncake(process: Process) -> bool:
    """Whether a process moves KV caches with Mooncake, by its command line."""
    return any("mooncake" in word.lower() for word in process.argv)
