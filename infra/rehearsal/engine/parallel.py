"""Which data-parallel mode vLLM's arguments mean, with the checks it makes on the way."""

from __future__ import annotations

import json
import zlib
from typing import Literal, NamedTuple

from .command_line import Arguments
from .failures import Failed, assertion, in_class, invalid
from .value_checks import check_contexts
from .world import World

Mode = Literal["single", "internal", "hybrid", "external", "multi-port"]
Version = tuple[int, ...]

# Fields of vLLM's ParallelConfig that every rank must agree on (compute_hash of 0.17.0 to 0.33.0 leaves
# out ranks, addresses, ports and node fields).
HASHED_FLAGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size",
    "data_parallel_size", "decode_context_parallel_size", "enable_expert_parallel",
    "enable_ep_weight_filter", "enable_eplb", "eplb_config", "expert_placement_strategy",
    "all2all_backend", "enable_elastic_ep", "enable_dbo", "ubatch_size",
    "dbo_decode_token_threshold", "dbo_prefill_token_threshold",
    "disable_nccl_for_dp_synchronization", "distributed_timeout_seconds",
    "cpu_distributed_timeout_seconds", "dcp_comm_backend", "dcp_kv_cache_interleave_size",
    "cp_kv_cache_interleave_size",
)  # fmt: skip
UBATCHING_BACKENDS = ("deepep_low_latency", "deepep_high_throughput")


class Parallel(NamedTuple):
    """The place of one process in its group."""

    mode: Mode
    tensor: int
    pipeline: int
    context: int
    size: int
    local: int
    first_rank: int
    is_headless: bool
    num_nodes: int
    node_rank: int
    node_rank_within_dp: int
    nodes_within_dp: int
    master_address: str
    master_port: int
    address: str
    rpc_port: int
    experts_share: int
    config_hash: str

    @property
    def workers_per_rank(self) -> int:
        """Devices of one rank over all nodes."""
        return self.tensor * self.pipeline

    @property
    def local_workers_per_rank(self) -> int:
        """Devices of one rank on this node."""
        return self.workers_per_rank // self.nodes_within_dp

    @property
    def has_engine(self) -> bool:
        """Whether an engine core runs here (a tensor-parallel follower has only workers)."""
        return self.node_rank_within_dp == 0

    @property
    def binds_rpc(self) -> bool:
        """Whether this process listens for the other ranks' handshakes."""
        spans = self.mode in ("external", "hybrid", "multi-port") or self.local < self.size
        return (
            self.size > 1
            and self.first_rank == 0
            and not self.is_headless
            and spans
            and self.has_engine
        )


def resolve(args: Arguments, version: Version, *, is_moe: bool, world: World) -> Parallel:
    """Return the place of this process.

    Raises:
        Failed: vLLM's own verdict on the combination.
    """
    _check_launch_mode(args, version)
    inferred = _infer_from_nodes(args, version)
    size = int(args["data_parallel_size"])
    is_external = bool(args["data_parallel_external_lb"]) or args["data_parallel_rank"] is not None
    if args["data_parallel_multi_port_external_lb"]:
        mode, local, rank = _multi_port(args)
    elif is_external:
        mode, local, rank = _external(args, version, inferred, is_moe=is_moe)
    else:
        mode, local, rank = _by_local_size(args, version, inferred)
    parallel = _assemble(args, mode, (local, rank))
    _check_parallel_config(args, parallel, version, world)
    if size == 1 and mode == "internal":
        return parallel._replace(mode="single")
    return parallel


def _check_launch_mode(args: Arguments, version: Version) -> None:
    """The checks of ``vllm serve`` before the engine's configuration is built."""
    count = args["api_server_count"]
    if args["headless"] and count:
        raise Failed(
            "ValueError",
            f"--api-server-count={count} cannot be used with --headless "
            "(no API servers are started in headless mode).",
        )
    if version < (0, 22):
        return
    is_multi_port = bool(args["data_parallel_multi_port_external_lb"])
    is_external = bool(args["data_parallel_external_lb"]) or args["data_parallel_rank"] is not None
    is_hybrid = bool(args["data_parallel_hybrid_lb"])
    if not is_hybrid and not is_multi_port:
        is_hybrid = args["data_parallel_start_rank"] is not None
    if is_multi_port + is_external + is_hybrid > 1:
        raise Failed(
            "ValueError",
            "Cannot use more than one data parallel load balancing mode. Choose one of: "
            "--data-parallel-multi-port-external-lb, --data-parallel-external-lb "
            "(or --data-parallel-rank), --data-parallel-hybrid-lb (or --data-parallel-start-rank).",
        )


def _infer_from_nodes(args: Arguments, version: Version) -> int:
    nodes, node = int(args["nnodes"] or 1), int(args["node_rank"] or 0)
    if args["headless"] and args["data_parallel_hybrid_lb"]:
        raise assertion("data_parallel_hybrid_lb is not applicable in headless mode")
    if args["data_parallel_hybrid_lb"] and args["data_parallel_external_lb"]:
        raise assertion(
            "data_parallel_hybrid_lb and data_parallel_external_lb cannot both be True."
        )
    if nodes == 1:
        return 0
    per_rank = int(args["pipeline_parallel_size"]) * int(args["tensor_parallel_size"])
    if version >= (0, 33):
        per_rank *= int(args["prefill_context_parallel_size"] or 1)
    world_size = int(args["data_parallel_size"]) * per_rank
    if world_size % nodes:
        if version >= (0, 27):
            last = "`--tensor-parallel-size`, or `--prefill-context-parallel-size`"
            raise Failed(
                "ValueError",
                f"Invalid data-parallel launch options: `--nnodes {nodes}` must evenly divide the total "
                f"world size ({world_size}). Adjust `--nnodes`, `--data-parallel-size`, "
                "`--pipeline-parallel-size`, "
                f"{last if version >= (0, 33) else 'or `--tensor-parallel-size`'}.",
            )
        raise assertion(f"world_size={world_size} must be divisible by nnodes={nodes}.")
    if node >= nodes:
        if version >= (0, 27):
            raise Failed(
                "ValueError",
                "Invalid data-parallel launch options: `--node-rank` must be between 0 and "
                f"{nodes - 1}; got `--node-rank {node}`. Set it to this node's zero-based index.",
            )
        raise assertion(f"node_rank={node} must be less than nnodes={nodes}.")
    return node * (world_size // nodes) // per_rank


def _external(
    args: Arguments, version: Version, inferred: int, *, is_moe: bool
) -> tuple[Mode, int, int]:
    size, rank, local = (
        args["data_parallel_size"],
        args["data_parallel_rank"],
        args["data_parallel_size_local"],
    )
    if int(args["nnodes"] or 1) > 1 and size > 1 and args["data_parallel_external_lb"]:
        rank = inferred
    if size > 1 and not is_moe and version >= (0, 22):
        raise Failed(
            "ValueError",
            "Non-MoE models do not support external data parallel mode. For external load balancing, "
            "launch independent vLLM instances without --data-parallel-* arguments.",
        )
    if rank is None:
        if version >= (0, 33):
            raise Failed(
                "ValueError",
                "Invalid data-parallel launch options: `--data-parallel-external-lb` requires a "
                "data-parallel rank. Set `--data-parallel-rank`, or set `--data-parallel-size` greater "
                "than 1 and use `--nnodes` with `--node-rank` so the rank can be inferred.",
            )
        raise assertion(
            "data_parallel_rank or node_rank must be specified if data_parallel_external_lb is enable."
        )
    if local not in (1, None):
        if version >= (0, 33):
            raise Failed(
                "ValueError",
                "Invalid data-parallel launch options: an external data-parallel rank requires "
                f"`--data-parallel-size-local 1`; got {local}. Set it to 1 or omit it.",
            )
        raise assertion("data_parallel_size_local must be 1 or None when data_parallel_rank is set")
    return "external", 1, rank


def _by_local_size(args: Arguments, version: Version, inferred: int) -> tuple[Mode, int, int]:
    size, local = int(args["data_parallel_size"]), args["data_parallel_size_local"]
    start, is_hybrid = args["data_parallel_start_rank"], bool(args["data_parallel_hybrid_lb"])
    nodes = int(args["nnodes"] or 1)
    per_rank = int(args["pipeline_parallel_size"]) * int(args["tensor_parallel_size"])
    if local is None and nodes > 1:
        local = max(size * per_rank // nodes // per_rank, 1)
    if local is None:
        if is_hybrid:
            if version >= (0, 33):
                raise Failed(
                    "ValueError",
                    "Invalid data-parallel launch options: `--data-parallel-hybrid-lb` requires "
                    "`--data-parallel-size-local`. Set it to the number of data-parallel ranks on this "
                    "node.",
                )
            raise assertion("data_parallel_size_local must be set to use data_parallel_hybrid_lb.")
        return "internal", size, 0
    implies_hybrid = start is not None if version >= (0, 33) else bool(start)
    if implies_hybrid and not args["headless"]:
        is_hybrid = True
    if is_hybrid and local == 1:
        return "external", 1, start or inferred
    if local == size:
        is_hybrid = False
    return ("hybrid" if is_hybrid else "internal"), local, start or inferred


def _multi_port(args: Arguments) -> tuple[Mode, int, int]:
    size, local, start = (
        args["data_parallel_size"],
        args["data_parallel_size_local"],
        args["data_parallel_start_rank"],
    )
    flag = "Error: --data-parallel-multi-port-external-lb"
    first = start if start is not None else int(args["node_rank"] or 0) * int(local or 0)
    port, supervisor = args["port"], args["data_parallel_supervisor_port"]
    checks = (
        (
            args["api_server_count"] not in (None, 1),
            f"{flag} currently requires --api-server-count=1",
        ),
        (size <= 1, f"{flag} requires --data-parallel-size > 1"),
        ((local or 0) <= 1, f"{flag} requires --data-parallel-size-local >= 2"),
        (
            (local or 0) > size,
            "Error: --data-parallel-size-local cannot exceed --data-parallel-size",
        ),
        (
            bool(local) and size % local != 0,
            "Error: --data-parallel-size must be divisible by --data-parallel-size-local",
        ),
        (
            first + (local or 0) > size,
            "Error: multi-port supervised ranks would exceed --data-parallel-size",
        ),
        (
            bool(local) and port <= supervisor <= port + local - 1,
            (
                f"Error: --data-parallel-supervisor-port {supervisor} overlaps with child rank ports "
                f"{port}-{port + (local or 1) - 1}"
            ),
        ),
    )
    for is_wrong, message in checks:
        if is_wrong:
            raise Failed("ValueError", message, process="")
    return "multi-port", local, first


def _assemble(args: Arguments, mode: Mode, place: tuple[int, int]) -> Parallel:
    local, rank = place
    size, nodes = int(args["data_parallel_size"]), int(args["nnodes"] or 1)
    within = max(1, nodes // max(1, size // max(1, local))) if nodes > 1 else 1
    tensor, pipeline = int(args["tensor_parallel_size"]), int(args["pipeline_parallel_size"])
    factors = {name: args[name] for name in HASHED_FLAGS if args[name] is not None}
    text = json.dumps(factors, sort_keys=True, default=str)
    digest = "".join(f"{zlib.crc32(f'{part}{text}'.encode()):08x}" for part in range(8))
    return Parallel(
        mode=mode,
        tensor=tensor,
        pipeline=pipeline,
        context=int(args["decode_context_parallel_size"] or 1),
        size=size,
        local=local,
        first_rank=rank,
        is_headless=bool(args["headless"]),
        num_nodes=nodes,
        node_rank=int(args["node_rank"] or 0),
        node_rank_within_dp=int(args["node_rank"] or 0) % within,
        nodes_within_dp=within,
        master_address=args["master_addr"] or "127.0.0.1",
        master_port=int(args["master_port"] or 29501),
        address=args["data_parallel_address"] or args["master_addr"] or "127.0.0.1",
        rpc_port=int(args["data_parallel_rpc_port"] or 29550),
        experts_share=tensor * size,
        config_hash=digest,
    )


def _check_parallel_config(
    args: Arguments, parallel: Parallel, version: Version, world: World
) -> None:
    """The validators of ParallelConfig, in its order."""
    name = "ParallelConfig"
    size, tensor = parallel.size, parallel.tensor
    if size > 1 and not 0 <= parallel.first_rank < size:
        raise invalid(
            name, f"data_parallel_rank ({parallel.first_rank}) must be in the range [0, {size})"
        )
    backend, count = args["distributed_executor_backend"], len(world.devices)
    needed = parallel.workers_per_rank
    if (
        backend is None and needed * size > 1 and world.vendor == "nvidia"
        and parallel.num_nodes == 1 and count < needed
    ):  # fmt: skip
        raise invalid(
            name,
            f"World size ({needed}) is larger than the number of available GPUs ({count}) in this node. If "
            "this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n"
            "- multiprocessing, set '--nnodes' appropriately.",
        )
    if parallel.num_nodes > 1 and backend not in (None, "mp", "uni", "external_launcher"):
        reason = "nnodes > 1 can only be set when distributed executor backend is mp, uni or external_launcher."
        raise invalid(name, reason)
    if parallel.local > size:
        raise invalid(
            name,
            f"data_parallel_size_local ({parallel.local}) must be <= data_parallel_size ({size})",
        )
    if size <= 1 and parallel.mode == "external":
        raise invalid(name, "data_parallel_external_lb can only be set when data_parallel_size > 1")
    _check_expert_balancing(args, parallel, world)
    check_contexts(args, version)
    if tensor % parallel.context:
        space = " " if version >= (0, 33) else ""
        raise invalid(
            name, f"tp_size={tensor} must be divisible by{space}dcp_size={parallel.context}."
        )
    if backend is None and needed < 1:  # neither one worker nor several
        raise invalid("VllmConfig", "Unknown distributed executor backend: None")


def _check_expert_balancing(args: Arguments, parallel: Parallel, world: World) -> None:
    redundant = (
        (args["eplb_config"] or {}).get("num_redundant_experts", 0)
        if isinstance(args["eplb_config"], dict)
        else 0
    )
    if not args["enable_eplb"]:
        if redundant:
            raise invalid(
                "ParallelConfig",
                f"num_redundant_experts is set to {redundant} but EPLB is not enabled. Either enable EPLB "
                "or unset num_redundant_experts.",
            )
        return
    if world.vendor == "ascend":
        raise invalid(
            "ParallelConfig",
            "Expert parallelism load balancing is only supported on CUDA devices or ROCm devices now.",
        )
    if not args["enable_expert_parallel"]:
        raise invalid("ParallelConfig", "enable_expert_parallel must be True to use EPLB.")
    if parallel.tensor * parallel.size <= 1:
        raise invalid(
            "ParallelConfig",
            "EPLB requires tensor_parallel_size or data_parallel_size to be greater than 1, but got "
            f"TP={parallel.tensor},DP={parallel.size}.",
        )


def check_microbatching(args: Arguments) -> None:
    """Dual-batch overlap needs a DeepEP backend.

    Raises:
        Failed: vLLM's own assertion.
    """
    backend = args["all2all_backend"]
    if (args["enable_dbo"] or (args["ubatch_size"] or 0) > 1) and backend not in UBATCHING_BACKENDS:
        failure = assertion(
            "Microbatching currently only supports the deepep_low_latency and deepep_high_throughput "
            f"all2all backend. {backend} is not supported. To fix use "
            "--all2all-backend=deepep_low_latency or --all2all-backend=deepep_high_throughput and "
            "install the DeepEP kernels."
        )
        raise in_class("VllmConfig", failure)
