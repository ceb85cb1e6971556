"""Where each data-parallel rank of a plan answers, read from its processes' own command lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from infra.catalog.load import Catalog
from infra.engines.reading import Reading
from infra.engines.registry import ENGINES
from infra.engines.serving import Handover, handover_of, has_counters, served_model_name
from infra.plan.process import Plan, Process
from infra.spec.stack import EngineName


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEndpoint:
    """One rank and how it is reached.

    Args:
        process: id of the process that runs its engine core.
        server: id of the process that answers for it; the same one unless the rank is headless.
        host: of the server, where probes for it run.
        rank: global data-parallel rank of its group.
        url: base of the HTTP endpoint.
        index: which of several ranks behind the endpoint, None when it has one.
        bootstrap: `http://address:port` of the server's bootstrap service, None without one.
        model: the name that clients ask for.
        counts_tokens: whether `/metrics` has its counter.
    """

    process: str
    server: str
    host: str
    group: str
    role: str
    rank: int
    url: str
    index: int | None
    bootstrap: str | None
    model: str
    counts_tokens: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Every rank of a plan in plan order, and what they share."""

    engine: EngineName
    handover: Handover
    ranks: tuple[RankEndpoint, ...]
    router: Process | None
    model: str
    edge: Process | None = None

    def of_role(self, role: str) -> tuple[RankEndpoint, ...]:
        """The ranks of one role."""
        return tuple(rank for rank in self.ranks if rank.role == role)


def read_endpoints(plan: Plan, catalog: Catalog) -> Endpoints:
    """The endpoints of a plan."""
    name = cast("EngineName", plan.engine.name)
    flags = catalog.flags(catalog.release(name, plan.engine.version).flags_catalogue)
    groups: dict[str, list[tuple[Process, Reading]]] = {}
    for process in plan.processes:
        if process.kind == "engine":
            num_devices = plan.host(process.host).num_devices
            reading = ENGINES[name].read(
                process.argv, process.env, num_devices=num_devices, flags=flags
            )
            groups.setdefault(process.group, []).append((process, reading))
    ranks = [rank for members in groups.values() for rank in _group_ranks(name, plan, members)]
    first = next(iter(groups.values()))[0][1]
    order = {process.id: i for i, process in enumerate(plan.processes)}
    return Endpoints(
        engine=name,
        handover=handover_of(name, first.flags),
        ranks=tuple(sorted(ranks, key=lambda rank: (order[rank.process], rank.rank))),
        router=next((process for process in plan.processes if process.kind == "router"), None),
        model=served_model_name(first.flags) or plan.model,
        edge=next((process for process in plan.processes if process.kind == "edge"), None),
    )


def _group_ranks(
    engine: EngineName, plan: Plan, members: Sequence[tuple[Process, Reading]]
) -> list[RankEndpoint]:
    """The ranks of one group: behind the only server, or each behind its own process's."""
    servers = [
        (process, reading)
        for process, reading in members
        if process.endpoint is not None and reading.takes_requests
    ]
    owners = {rank: process.id for process, _ in members for rank in process.dp_ranks}
    found: list[RankEndpoint] = []
    for process, reading in servers:
        fronted = sorted(owners) if len(servers) == 1 else list(process.dp_ranks)
        ports = _http_ports(process)
        for index, rank in enumerate(fronted):
            has_own_port = len(ports) == len(fronted)
            port = ports[index] if has_own_port else ports[0]
            found.append(
                RankEndpoint(
                    process=owners[rank],
                    server=process.id,
                    host=process.host,
                    group=process.group,
                    role=process.role,
                    rank=rank,
                    url=f"http://{_address(process)}:{port}",
                    index=None if has_own_port else index,
                    bootstrap=_bootstrap(process),
                    model=served_model_name(reading.flags) or plan.model,
                    counts_tokens=has_counters(engine, reading.flags),
                )
            )
    return found


def _http_ports(process: Process) -> list[int]:
    bind = next((bind for bind in process.binds if bind.name == "http"), None)
    if bind is None:
        return [urlsplit(process.endpoint or "").port or 80]
    return list(range(bind.port, bind.port + bind.count))


def _address(process: Process) -> str:
    return urlsplit(process.endpoint or "").hostname or ""


def _bootstrap(process: Process) -> str | None:
    port = next((bind.port for bind in process.binds if bind.name == "bootstrap"), None)
    return None if port is None else f"http://{_address(process)}:{port}"
