"""Why a deployment does not serve, in words that name the process, the reason and the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report
from infra.launch.name_lists import clauses, listed
from infra.launch.port_holders import Misplaced
from infra.launch.unit_states import UnitState, own_reason, why_ended
from infra.plan.endpoints import RankEndpoint
from infra.plan.process import Process
from infra.render.host_paths import unit_name, watch_unit

MAX_NAMED = 5
_NAMED_RANK = re.compile(r"\b(?:engine|data parallel rank:?) (\d+)\b")


def failed_processes(deployment: Deployment, ended: Sequence[UnitState]) -> NotReady:
    """Processes that have ended; the one that tells a reason of its own, and ended first, stands in front."""
    order = {process.id: i for i, process in enumerate(deployment.plan.processes)}
    first, *others = sorted(
        ended,
        key=lambda state: (
            not own_reason(state.log_tail),
            state.since or "~",
            order[state.process],
        ),
    )
    what = _sentence(why_ended(first) + _rank_named(deployment, first))
    if others:
        what += f" After it ended {listed([state.process for state in others], MAX_NAMED)}."
    stack = deployment.plan.stack
    then = (
        f"When that is mended, `fab up --stack {stack}` starts what has ended, its group as one, and goes on (with "
        f"--replace where the stack was changed); `fab down --stack {stack}` stops the rest."
    )
    return NotReady(first.process, what, _way_out(deployment, first.process, then))


def refuse_not_taken(
    deployment: Deployment, reports: Mapping[str, Report], started: Iterable[UnitState]
) -> None:
    """Refuse to wait for units that systemd does not even begin to start.

    What it says of the watcher, which is started beside them, is no word about them: who watches is asked later.

    Args:
        deployment: whose.
        reports: what hosts said of a start, by host.
        started: the units that were to be started, as they then were.

    Raises:
        NotReady: in systemctl's own words, there are some.
    """
    stack = deployment.plan.stack
    idle: dict[str, list[str]] = {}
    for state in started:
        if state.has_ended:
            idle.setdefault(state.host, []).append(state.unit)
    said: dict[str, str] = {}
    for host, units in idle.items():
        message = str(reports.get(host, {}).get("message") or "")
        if text := _of_units(message, units, watch_unit(stack)):
            said[host] = text
    if not said:
        return
    told = [f"{host}: {text}" if len(said) > 1 else text for host, text in said.items()]
    raise NotReady(
        listed(list(said), MAX_NAMED),
        _sentence(f"systemd does not take the start: {clauses(told)}"),
        f"`ssh {next(iter(said))} systemctl status 'moe-{stack}-*'` shows the units there. When that is mended, "
        f"`fab up --stack {stack}` starts what does not run, its group as one, and goes on; "
        f"`fab down --stack {stack}` stops the rest.",
    )


def _of_units(message: str, units: Sequence[str], other: str) -> str:
    """What systemctl says in one line, without the lines that name only another unit than these."""
    lines = [
        line
        for line in message.splitlines()
        if other not in line or any(unit in line for unit in units)
    ]
    return " ".join(" ".join(lines).split())


def misplaced_process(deployment: Deployment, found: Misplaced) -> NotReady:
    """A process that listens where another one should."""
    what = (
        f"It listens on port {found.port}, which is {found.victim}'s, and not on its own {found.own_port}; "
        f"{found.victim} ended: address already in use."
    )
    return NotReady(found.process, what, _way_out(deployment, found.process, _anew(deployment)))


def never_ready(deployment: Deployment, rank: RankEndpoint, reason: str) -> NotReady:
    """A process that runs and cannot serve."""
    what = _sentence(f"rank {rank.rank} of {rank.group} does not serve: {reason}")
    return NotReady(rank.process, what, _way_out(deployment, rank.process, _anew(deployment)))


def not_in_time(
    deployment: Deployment, awaited: Sequence[str], reasons: Mapping[str, str], limit_s: float
) -> NotReady:
    """Processes that were not ready within the limit."""
    stack = deployment.plan.stack
    parts = [f"{p}: {reasons[p]}" if p in reasons else p for p in awaited]
    return NotReady(
        listed(awaited, MAX_NAMED),
        _sentence(f"not ready within {limit_s:g} s: {clauses(parts, MAX_NAMED)}"),
        f"They go on starting: run `fab up --stack {stack}` again to go on waiting, with --timeout for longer; "
        f"`fab logs --stack {stack}` shows what they say.",
    )


def router_ended(deployment: Deployment, router: Process, reason: str) -> NotReady:
    """A router or an edge that has ended, or ends again and again."""
    stack = deployment.plan.stack
    then = (
        f"When that is mended, `fab up --stack {stack}` starts it anew, and leaves engines as they are; "
        f"`fab down --stack {stack}` stops them."
    )
    return NotReady(router.id, _sentence(reason), _way_out(deployment, router.id, then))


def router_passes_nothing(deployment: Deployment, router: Process, reason: str) -> NotReady:
    """A router or an edge that runs, and passes no request on."""
    stack = deployment.plan.stack
    then = (
        f"When that is mended, `ssh {router.host} sudo systemctl restart {unit_name(stack, router)}`, then "
        f"`fab up --stack {stack}`: it leaves engines as they are."
    )
    return NotReady(router.id, _sentence(reason), _way_out(deployment, router.id, then))


def _rank_named(deployment: Deployment, state: UnitState) -> str:
    """Which process is meant when a leader's message names a rank of its group."""
    match = _NAMED_RANK.search(why_ended(state))
    if match is None:
        return ""
    groups = {process.id: process.group for process in deployment.plan.processes}
    for process in deployment.plan.processes:
        is_other = process.id != state.process and process.group == groups[state.process]
        if is_other and int(match[1]) in process.dp_ranks:
            return f" (rank {match[1]} is {process.id})"
    return ""


def _anew(deployment: Deployment) -> str:
    """What to type when something that runs has to be started anew, which `up` alone does not do."""
    stack = deployment.plan.stack
    return (
        f"It is left running: when that is mended, `fab down --stack {stack}`, then `fab up --stack {stack}` "
        f"(`fab up --stack {stack} --replace` alone where the stack was changed)."
    )


def _way_out(deployment: Deployment, process: str, then: str) -> str:
    stack = deployment.plan.stack
    return (
        f"`fab bundle --stack {stack}` keeps the evidence of all ranks, `fab logs --stack {stack} --rank {process}` "
        f"shows more. {then}"
    )


def _sentence(text: str) -> str:
    """With a capital and one full stop."""
    return text[:1].upper() + text[1:].rstrip(". ") + "."
