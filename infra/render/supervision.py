"""`groups.json`: what the watcher of one host is told of its groups. docs/decisions.md 21 says why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from infra.engines.credentials import credentials_of
from infra.engines.serving import HEALTH, METRICS, idle_questions, progress_metrics
from infra.plan.ports import watch_port
from infra.plan.process import Plan, Process
from infra.render.host_paths import credential_path, unit_name
from infra.spec.stack import EngineName

SCHEMA_VERSION = 1
API_KEY = "api_key"
# Seconds, and restarts in a row; `infra/agent/group/rules.py` says what each means.
LIMITS: Mapping[str, float] = {
    "first_pause_s": 1.0,
    "longest_pause_s": 60.0,
    # LeaderWorkerSet's KEP-820 (maxGroupRestarts) leaves the number to its user; five take half a minute of pauses.
    "max_restarts": 5,
    "stable_s": 600.0,
    # Above what a watcher that is restarted, or a host that loads weights from disk, is silent for.
    "lost_s": 10.0,
    "fresh_s": 2.0,
    "start_s": 30.0,
    "grace_s": 2.0,
}
# Seconds; above the longest step of an engine (a whole context's prefill, a graph captured at a first request),
# below the engines' own limit of 300 s (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, vllm 0.22.1). `first_s` is `fab up`'s.
# A token in ten minutes costs nothing, and a rank that hangs is found before anybody has asked for hours.
PATIENCE: Mapping[str, float] = {
    "first_s": 1800.0,
    "silent_s": 60.0,
    "stuck_s": 120.0,
    "idle_s": 600.0,
}
# A router computes nothing: one that gives no HTTP answer for so long passes nothing on, and has nothing to load again.
ROUTER_SILENT_S = 10.0


def watch_document(plan: Plan, host: str) -> str:
    """What the watcher of a host reads, as text."""
    engine = cast("EngineName", plan.engine.name)
    open_ones, growing = progress_metrics(engine)
    keys = [each.name for each in credentials_of(engine, plan.secrets) if each.name == API_KEY]
    routers = [p for p in plan.on_host(host) if p.kind == "router"]
    document = {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "release": plan.hash,
        "host": host,
        "runtime": plan.runtime,
        "router": _router(plan, routers[0]) if routers else None,
        "groups": [_group(plan, name, host) for name in groups_on(plan, host)],
        "limits": dict(LIMITS),
        "patience": dict(PATIENCE),
        "counters": {"open": list(open_ones), "growing": list(growing)},
        "key": credential_path(plan.stack, API_KEY) if keys else "",
        "addresses": _addresses(plan, host),
    }
    return json.dumps(document, indent=1) + "\n"


def groups_of(plan: Plan) -> dict[str, tuple[Process, ...]]:
    """The engine processes of each group, the leader first, in plan order."""
    found: dict[str, tuple[Process, ...]] = {}
    for process in plan.processes:
        if process.kind == "engine":
            found[process.group] = (*found.get(process.group, ()), process)
    return found


def groups_on(plan: Plan, host: str) -> tuple[str, ...]:
    """The groups with a process on a host."""
    found = groups_of(plan)
    return tuple(name for name in found if any(p.host == host for p in found[name]))


def plan_watch_port(plan: Plan) -> int:
    """Where the plan's hosts of rank 0 answer the others of their groups."""
    taken = {b.port + i for p in plan.processes for b in p.binds for i in range(b.count)}
    return watch_port(plan.stack, frozenset(taken))


def _addresses(plan: Plan, host: str) -> dict[str, str]:
    """Every host that a host's watcher speaks with, and itself: who else connects is closed unheard."""
    groups = groups_of(plan)
    members = [p.host for name in groups_on(plan, host) for p in groups[name]]
    return {name: plan.host(name).address for name in dict.fromkeys([host, *members])}


def _router(plan: Plan, process: Process) -> dict[str, object]:
    return {
        "unit": unit_name(plan.stack, process),
        "process": process.id,
        "url": f"{process.endpoint}{HEALTH}",
        "silent_s": ROUTER_SILENT_S,
    }


def _group(plan: Plan, name: str, host: str) -> dict[str, object]:
    processes = groups_of(plan)[name]
    own = [process for process in processes if process.host == host]
    leader = processes[0].host
    return {
        "name": name,
        "leader": leader,
        "address": plan.host(leader).address,
        "port": plan_watch_port(plan),
        "members": list(dict.fromkeys(process.host for process in processes)),
        "units": {unit_name(plan.stack, process): process.id for process in own},
        "ports": sorted({b.port + i for p in own for b in p.binds for i in range(b.count)}),
        "metrics": [url for process in own for url in _metrics(process)],
        "asks": {url: asks for process in own for url, asks in _asks(plan, processes, process)},
    }


def _asks(
    plan: Plan, group: Sequence[Process], process: Process
) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Where a process counts, and what asks the ranks behind it for a token."""
    engine = cast("EngineName", plan.engine.name)
    servers = [each for each in group if each.endpoint is not None]
    ranks = process.dp_ranks if len(servers) > 1 else [r for each in group for r in each.dp_ranks]
    urls = _metrics(process)
    for url in urls:
        asks = idle_questions(engine, process.role, len(ranks) if len(urls) == 1 else 1)
        if asks:
            base = url.removesuffix(METRICS)
            yield (
                url,
                [
                    {"url": f"{base}{a['path']}", "headers": a["headers"], "body": a["body"]}
                    for a in asks
                ],
            )


def _metrics(process: Process) -> list[str]:
    """Where a process counts: one address, or one per rank in multi-port mode; none for a headless one."""
    if process.endpoint is None:
        return []
    address = process.endpoint.rpartition(":")[0]
    http = next(bind for bind in process.binds if bind.name == "http")
    return [f"{address}:{http.port + i}{METRICS}" for i in range(http.count)]
