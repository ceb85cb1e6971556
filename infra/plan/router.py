"""The router of a plan: one process on the first host that dials every endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.engines.reading import Reading
from infra.engines.routers import (
    LOOPBACK,
    Endpoint,
    RouterContext,
    has_prometheus_port,
    longest_answer_s,
    read_router,
    write_router,
)
from infra.engines.settings import Origin
from infra.inventory.hosts import AddressBook
from infra.plan.ports import BLOCKS
from infra.plan.process import Connect, Process
from infra.plan.resolve import ResolvedStack
from infra.plan.topology import Topology

ROUTER_ID = "router/0"
_ORIGIN = Origin(kind="compiler", name="plan", detail="router")
# Of a checkpoint whose context the catalogue does not know; no model of it has a longer one.
UNKNOWN_CONTEXT_TOKENS = 1_048_576


def num_endpoints(topology: Topology) -> int:
    """How many HTTP endpoints clients would face without a router."""
    count = 0
    for group in topology.groups:
        settings = group.settings
        if settings.data_parallel == 1 or settings.load_balancing == "internal":
            count += 1
        elif settings.load_balancing == "hybrid":
            count += len(group.hosts)
        else:
            count += settings.data_parallel
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPlace:
    """Where a router listens.

    Args:
        host: of the plan.
        port: its own.
        is_behind_edge: whether only a front on its own host dials it.
    """

    host: str
    port: int
    is_behind_edge: bool


def compile_router(
    resolved: ResolvedStack,
    book: AddressBook,
    catalog: Catalog,
    engines: Sequence[tuple[Process, Reading]],
    place: RouterPlace,
) -> Process:
    """The router's process.

    Args:
        resolved: a stack with a router.
        book: addresses.
        catalog: routers and their flags.
        engines: all engine processes in plan order, with how they are read.
        place: where it listens.
    """
    spec = resolved.stack.spec
    if spec.router is None:
        message = "compile_router needs a stack with a router"
        raise AssertionError(message)
    host = place.host
    release = catalog.router(spec.router.name)
    address = book.address(host, seen_from=host)
    argv = write_router(
        spec.router.name,
        RouterContext(
            release=release,
            address=book.facts(host).address,
            port=place.port,
            metrics_address=address if spec.monitors else LOOPBACK,
            prometheus_port=_prometheus_port(spec.port, spec.leave_devices),
            longest_answer_s=_longest_answer_s(resolved),
            policy=spec.router.policy,
            kv_transfer=spec.kv_transfer,
            endpoints=_endpoints(engines),
            is_behind_edge=place.is_behind_edge,
        ),
    )
    reading = read_router(
        argv, catalog.flags(release.flags_catalogue) if release.flags_catalogue else None
    )
    return Process(
        id=ROUTER_ID,
        kind="router",
        group=ROUTER_ID,
        host=host,
        role="router",
        replica=0,
        dp_ranks=(),
        devices=(),
        endpoint=f"http://{LOOPBACK if place.is_behind_edge else address}:{place.port}",
        binds=reading.binds if has_prometheus_port(spec.router.name) else reading.binds[:1],
        connects=_connects(reading, [process for process, _ in engines]),
        env={},
        env_prepend={},
        mounts=(),
        argv=argv,
        flag_origins=dict.fromkeys((word for word in argv if word[:2] == "--"), _ORIGIN),
        env_origins={},
    )


def _endpoints(engines: Sequence[tuple[Process, Reading]]) -> tuple[Endpoint, ...]:
    """What the router spreads requests over."""
    return tuple(
        Endpoint(role=p.role, address=where, port=port, bootstrap_port=_bootstrap(p))
        for p, how in engines
        if p.endpoint is not None and how.takes_requests
        for where, port in _served(p)
    )


def _connects(reading: Reading, engines: Sequence[Process]) -> tuple[Connect, ...]:
    """What the router dials, by process: the owner of the address and port, or the bare address."""
    owners: dict[tuple[str, int], str] = {}
    for process in engines:
        address = (process.endpoint or "").removeprefix("http://").rpartition(":")[0]
        for bind in process.binds:
            if bind.name in {"http", "bootstrap"}:
                owners.update({(address, bind.port + i): process.id for i in range(bind.count)})
    return tuple(
        Connect(
            name=d.name, to=owners.get((d.address, d.port), f"{d.address}:{d.port}"), port=d.port
        )
        for d in reading.dials
    )


def _longest_answer_s(resolved: ResolvedStack) -> int:
    """Seconds that the longest request of a role which answers clients takes at the most."""
    tokens = []
    for settings in resolved.roles:
        shape = settings.weights.checkpoint.shape
        known = shape.max_context if shape else UNKNOWN_CONTEXT_TOKENS
        if settings.role != "prefill":
            tokens.append(settings.max_model_len or known)
    return longest_answer_s(max(tokens))


def _prometheus_port(client_port: int, left: int) -> int:
    """The first port of the block that clients do not use, behind those that another stack's may be."""
    block = BLOCKS["prometheus"]
    return next(port for port in range(block.first + left, block.last + 1) if port != client_port)


def _served(process: Process) -> list[tuple[str, int]]:
    """Address and port of each HTTP endpoint of a process: one, or one per rank in multi-port mode."""
    address = (process.endpoint or "").removeprefix("http://").rpartition(":")[0]
    http = next(bind for bind in process.binds if bind.name == "http")
    return [(address, http.port + i) for i in range(http.count)]


def _bootstrap(process: Process) -> int | None:
    return next((bind.port for bind in process.binds if bind.name == "bootstrap"), None)
