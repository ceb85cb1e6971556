"""vLLM's command line read back: mode, ranks, devices, ports it binds and dials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from infra.catalog.flags import FlagCatalogue
from infra.engines.command_line import ParsedFlags, as_int, as_map, parse_flags
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.recognition import engine_words, is_wrapped
from infra.engines.sizes import MASKS, MAX_RANKS, read_devices, read_size
from infra.spec.bounded import is_whole_number

# All that a layout is read from, beside the argument vector.
VARIABLES = (*MASKS, "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_MOONCAKE_BOOTSTRAP_PORT")
DEFAULT_HTTP_PORT = 8000
DEFAULT_RPC_PORT = 29550
DEFAULT_MASTER_PORT = 29501
DEFAULT_SIDE_CHANNEL_PORT = 5600
DEFAULT_BOOTSTRAP_PORT = 8998
DEFAULT_SUPERVISOR_PORT = 9256
DEFAULT_KV_PORT = 14579
DEFAULT_EVENTS_ENDPOINT = "tcp://*:5557"

Mode = Literal["single", "internal", "hybrid", "external", "multi-port", "multi-node"]


class Parallel(NamedTuple):
    """The parallel layout that a command line asks for, sizes in ranks and devices."""

    mode: Mode
    tensor: int
    pipeline: int
    data: int
    local: int
    first_rank: int
    headless: bool
    num_nodes: int
    node: int
    address: str
    rpc_port: int

    @property
    def rank_devices(self) -> int:
        """Devices of one rank."""
        return self.tensor * self.pipeline

    @property
    def ranks(self) -> range:
        """Ranks whose core runs in this process."""
        if self.mode == "multi-node":
            first, inside = divmod(self.node * self.local_devices, self.rank_devices)
            count = self.local_devices // self.rank_devices
            return range(first, first + (count or int(inside == 0)))
        return range(self.first_rank, self.first_rank + self.local)

    @property
    def local_devices(self) -> int:
        """Devices that the process takes on its host."""
        if self.mode == "multi-node":
            return self.rank_devices * self.data // max(self.num_nodes, 1)
        return self.rank_devices * self.local

    @property
    def binds_rpc(self) -> bool:
        """Whether the group's handshake uses TCP."""
        if self.data == 1 or self.mode == "multi-node":
            return False
        return self.mode != "internal" or self.local < self.data


def read(
    argv: tuple[str, ...], env: Mapping[str, str], *, num_devices: int, catalogue: FlagCatalogue
) -> Reading:
    """One `vllm serve` process.

    Args:
        argv: the program, `serve`, the model, flags.
        env: its environment.
        num_devices: devices of its host.
        catalogue: flags of the pinned release.
    """
    return _read(argv, tuple(map(env.get, VARIABLES)), num_devices, catalogue)


@lru_cache(maxsize=32768)
def _read(
    argv: tuple[str, ...],
    told: tuple[str | None, ...],
    num_devices: int,
    catalogue: FlagCatalogue,
) -> Reading:
    """A plan is read when it is compiled and again when it is judged: the second time is free."""
    env = {name: value for name, value in zip(VARIABLES, told, strict=True) if value is not None}
    wrapped = is_wrapped(argv)
    parsed = parse_flags(engine_words(argv), catalogue)
    parallel = read_parallel(parsed.values)
    ranks = parallel.ranks
    http_port = None
    if not parallel.headless and not wrapped:
        http_port = as_int(parsed.values.get("port"), DEFAULT_HTTP_PORT)
    return Reading(
        flags=_with_model(parsed, wrapped=wrapped),
        unknown=() if wrapped else parsed.refused_with(0 if "model" in parsed.values else 1),
        dp_ranks=tuple(ranks),
        devices=read_devices(env, parallel.local_devices, num_devices),
        http_port=http_port,
        binds=_binds(parsed.values, env, parallel, http_port),
        dials=_dials(parsed.values, parallel),
        group_size=parallel.data,
        is_leader=0 in ranks,
        takes_requests=not (parallel.headless or (parallel.num_nodes > 1 and parallel.node > 0)),
        extra={"parallel": parallel},
    )


def read_parallel(flags: Mapping[str, object]) -> Parallel:
    """The layout that parsed flags ask for (vllm arg_utils.py and serve.py@0.22.1)."""
    data = read_size(flags, "data-parallel-size")
    num_nodes = read_size(flags, "nnodes")
    rank = flags.get("data-parallel-rank")
    start = flags.get("data-parallel-start-rank")
    headless = bool(flags.get("headless"))
    local = min(as_int(flags.get("data-parallel-size-local"), data), MAX_RANKS)
    mode: Mode = "single" if data == 1 else "internal"
    if num_nodes > 1:
        mode = "multi-node"
    elif data > 1 and flags.get("data-parallel-multi-port-external-lb"):
        mode = "multi-port"
    elif data > 1 and rank is not None:
        mode, local = "external", 1
    elif data > 1 and (flags.get("data-parallel-hybrid-lb") or (start and not headless)):
        mode = "hybrid"
    return Parallel(
        mode=mode,
        tensor=read_size(flags, "tensor-parallel-size"),
        pipeline=read_size(flags, "pipeline-parallel-size"),
        data=data,
        local=local,
        first_rank=as_int(rank if mode == "external" else start, 0),
        headless=headless,
        num_nodes=num_nodes,
        node=as_int(flags.get("node-rank"), 0),
        address=str(flags.get("data-parallel-address") or flags.get("master-addr") or "127.0.0.1"),
        rpc_port=as_int(flags.get("data-parallel-rpc-port"), DEFAULT_RPC_PORT),
    )


def _with_model(parsed: ParsedFlags, *, wrapped: bool) -> dict[str, object]:
    """The flags with the model; where `--model` names one, a word without a flag is none."""
    flags = dict(parsed.values)
    if parsed.positionals and not wrapped and "model" not in flags:
        flags["model"] = parsed.positionals[0]
    return flags


def _binds(
    flags: Mapping[str, object], env: Mapping[str, str], parallel: Parallel, http_port: int | None
) -> tuple[Bind, ...]:
    binds: list[Bind] = []
    if http_port is not None:
        binds.append(
            Bind(
                name="http",
                port=http_port,
                count=parallel.local if parallel.mode == "multi-port" else 1,
            )
        )
    if parallel.mode == "multi-port":
        port = as_int(flags.get("data-parallel-supervisor-port"), DEFAULT_SUPERVISOR_PORT)
        binds.append(Bind(name="supervisor", port=port))
    if parallel.binds_rpc and 0 in parallel.ranks:
        binds.append(Bind(name="dp_rpc", port=parallel.rpc_port))
    if parallel.mode == "multi-node" and parallel.node == 0:
        binds.append(
            Bind(name="master", port=as_int(flags.get("master-port"), DEFAULT_MASTER_PORT))
        )
    binds.extend(_event_binds(as_map(flags.get("kv-events-config")), parallel))
    binds.extend(_kv_binds(as_map(flags.get("kv-transfer-config")), env, parallel))
    return tuple(sorted(binds, key=lambda bind: (bind.name, bind.port)))


def _kv_binds(
    config: Mapping[str, object], env: Mapping[str, str], parallel: Parallel
) -> list[Bind]:
    connector, ranks = config.get("kv_connector"), parallel.ranks
    if connector == "MooncakeConnectorV1" and config.get("kv_role") != "kv_consumer":
        return [_mooncake_listeners(as_int(config.get("kv_port"), DEFAULT_KV_PORT), parallel)]
    if not ranks:
        return []
    if connector == "P2pNcclConnector" and parallel.data == 1:
        return [_nccl_listeners(as_int(config.get("kv_port"), DEFAULT_KV_PORT), parallel)]
    if connector == "NixlConnector":
        base = as_int(env.get("VLLM_NIXL_SIDE_CHANNEL_PORT"), DEFAULT_SIDE_CHANNEL_PORT)
        return [Bind(name="side_channel", port=base + ranks[0], count=len(ranks))]
    if connector == "MooncakeConnector" and config.get("kv_role") != "kv_consumer":
        port = as_int(env.get("VLLM_MOONCAKE_BOOTSTRAP_PORT"), DEFAULT_BOOTSTRAP_PORT)
        return [Bind(name="bootstrap", port=port)]
    return []


def _nccl_listeners(base: int, parallel: Parallel) -> Bind:
    """One port per worker, by its rank in the engine (vllm p2p_nccl_engine.py@0.17.0, 0.22.1); gone in 0.33.0."""
    first = parallel.node * parallel.local_devices if parallel.mode == "multi-node" else 0
    return Bind(name="kv", port=base + first, count=max(1, min(parallel.local_devices, MAX_RANKS)))


def _event_binds(config: Mapping[str, object], parallel: Parallel) -> list[Bind]:
    """Where events of the KV cache are published, a port per rank.

    Source: vllm config/kv_events.py, distributed/kv_events.py@0.22.1 (offset_endpoint_port).
    """
    if not config.get("enable_kv_cache_events") or config.get("publisher") == "null":
        return []
    endpoint = str(config.get("endpoint") or DEFAULT_EVENTS_ENDPOINT)
    _, colon, port = endpoint.removeprefix("tcp://").rpartition(":")
    if (
        not parallel.ranks
        or not endpoint.startswith("tcp://*")
        or not (colon and is_whole_number(port))
    ):
        return []
    return [Bind(name="kv_events", port=int(port) + parallel.ranks[0], count=len(parallel.ranks))]


def _mooncake_listeners(base: int, parallel: Parallel) -> Bind:
    """One port per device of the process, on its own host.

    Source: vllm_ascend mooncake_connector.py@0.22.1rc1, kv_port + dp_rank * TP * PP + tp_rank.
    """
    first = parallel.first_rank * parallel.rank_devices
    if parallel.mode == "multi-node":
        first = parallel.node * parallel.local_devices
    return Bind(name="kv", port=base + first, count=max(1, min(parallel.local_devices, MAX_RANKS)))


def _dials(flags: Mapping[str, object], parallel: Parallel) -> tuple[Dial, ...]:
    if parallel.mode == "multi-node" and parallel.node > 0:
        port = as_int(flags.get("master-port"), DEFAULT_MASTER_PORT)
        return (Dial(name="master", address=str(flags.get("master-addr", "127.0.0.1")), port=port),)
    if parallel.binds_rpc and 0 not in parallel.ranks:
        return (Dial(name="dp_rpc", address=parallel.address, port=parallel.rpc_port),)
    return ()
