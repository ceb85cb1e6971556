"""Builds and checks the configuration of an SGLang server, as its ServerArgs do."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

from . import catalogue, memory
from .checkpoint import Checkpoint, read_checkpoint
from .combinations import check_combinations, settings_of
from .command_line import Arguments, Grammar
from .environment import Addresses
from .failures import Failed, Refused, assertion
from .kv_transfer import KvTransfer
from .parallel import Parallel
from .settings import Features, Release, Settings
from .sglang_attention import check_attention, check_attention_of_workers
from .world import World

DEFAULT_MEMORY_FRACTION = 0.88
DEFAULT_CHUNK = 8192
INFINIBAND_FOLDER = "/sys/class/infiniband"
# Names of sglang/srt/parser/conversation.py that matter for tests of a wrong name are few: everything
# that is neither here nor a file is refused.
CHAT_TEMPLATES = frozenset(
    {"chatml", "llama-2", "llama-4", "vicuna_v1.1", "deepseek-vl2", "kimi-vl", "qwen2-vl"}
)
# Methods that go with what a checkpoint says of itself (srt/configs/model_config.py@0.5.9).
COMPATIBLE = {
    "compressed-tensors": ("compressed-tensors", "w8a8_int8", "w8a8_fp8"),
    "modelopt_fp4": ("modelopt_fp4", "modelopt", "modelopt_fp8", "petit_nvfp4"),
}
DRAFTING = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


class Node(NamedTuple):
    """What is SGLang's own beside the common settings."""

    dist_address: tuple[str, int] | None
    num_nodes: int
    node_rank: int
    has_dp_attention: bool
    data_parallel: int
    mode: str
    bootstrap_port: int
    devices: int
    page_size: int


def parse_arguments(argv: list[str], program: str, release: Release) -> Arguments:
    """Parse the arguments of a server.

    Raises:
        Refused: argparse's verdict.
    """
    usage = f"usage: {program} [-h] --model-path MODEL_PATH [options]\n"
    args, unknown = _grammar(catalogue.catalogue_folder(), release.version, program, usage).parse(
        argv
    )
    if unknown:
        raise Refused(usage, program, f"unrecognized arguments: {' '.join(unknown)}")
    return args


@cache
def _grammar(_folder: str, version: str, program: str, usage: str) -> Grammar:
    """What a release in the catalogue's folder understands."""
    flags = catalogue.read_flags("sglang", version)
    return Grammar(flags, None, program=program, usage=usage)


def configure(
    args: Arguments, release: Release, world: World, environ: dict[str, str]
) -> tuple[Settings, Node]:
    """Return the settings of this process.

    Raises:
        Failed: SGLang's own AssertionError or ValueError.
    """
    version = release.numbers
    path = args["model_path"]
    if not os.path.isfile(os.path.join(path, "config.json")):
        raise Failed(
            "OSError",
            f"Can't load the configuration of '{path}'. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the same "
            f"name. Otherwise, make sure '{path}' is the correct path to a directory containing a "
            "config.json file",
            process="",
        )
    checkpoint = read_checkpoint(path, environ)
    node = _node(args)
    tensor = _either(args, "tp_size", "tensor_parallel_size")
    pipeline = _either(args, "pp_size", "pipeline_parallel_size")
    served = args["served_model_name"] or path
    _check_parallel(args, node, (tensor, pipeline))
    check_attention(args, version, world)
    _check_speculation(args)
    _check_disaggregation(args, node, tensor)
    look = settings_of(args, environ, checkpoint)
    check_combinations("sglang", "sglang", version, look, configures="")
    _check_context(args, tensor)
    _check_model(args, checkpoint, world, _attention_tensor(node, tensor))
    if ":" in served:
        raise assertion(
            "served_model_name cannot contain a colon (':') character. The colon is reserved for the "
            "'model:adapter' syntax used in LoRA adapter specification. Invalid value: '"
            + served
            + "'"
        )
    check_attention_of_workers(args, release.version, world, is_mla=checkpoint.is_mla)
    node = node._replace(devices=_devices(node, tensor, pipeline))
    place = _place(node, tensor, pipeline)
    return _settings(args, release, (checkpoint, place, node), world, served), node


def fit(settings: Settings, world: World) -> Settings:
    """Return the settings with the size of the token pool.

    Raises:
        Failed: the weights do not fit.
    """
    place = settings.parallel
    share = memory.Share(place.tensor, place.pipeline, place.experts_share, 1)
    weights = memory.weight_bytes(settings.checkpoint, share)
    left = world.memory_bytes * settings.utilisation - weights
    if left <= 0:
        raise Failed(
            "RuntimeError",
            "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            f"self.server_args.mem_fraction_static={settings.utilisation}",
            process="Scheduler",
        )
    per_token = settings.checkpoint.kv_bytes_per_token / place.pipeline
    if settings.cache_dtype.startswith("fp8"):
        per_token /= 2
    return settings._replace(kv_tokens=int(left / per_token))


def _either(args: Arguments, short: str, long: str) -> int:
    """Return a size whose destination differs between releases."""
    value = args[short]
    return int(args[long] if value is None else value)


def _node(args: Arguments) -> Node:
    address = args["dist_init_addr"]
    parts = address.rsplit(":", 1) if address else []
    data_parallel = max(
        _either(args, "dp_size", "data_parallel_size"), int(args["attn_dp_size"] or 1)
    )
    has_attention = bool(args["enable_dp_attention"]) or int(args["attn_dp_size"] or 1) > 1
    _check_address(parts, has_attention=has_attention and data_parallel > 1)
    return Node(
        dist_address=(parts[0], int(parts[1])) if parts else None,
        num_nodes=int(args["nnodes"]),
        node_rank=int(args["node_rank"]),
        has_dp_attention=has_attention and data_parallel > 1,
        data_parallel=data_parallel,
        mode=args["disaggregation_mode"],
        bootstrap_port=int(args["disaggregation_bootstrap_port"]),
        devices=0,
        page_size=int(args["page_size"] or 1),
    )


def _check_address(parts: list[str], *, has_attention: bool) -> None:
    """Attention ranks derive ports from the first node's; else torch is the first to look at it, in a scheduler."""
    if has_attention and len(parts) == 1:
        raise assertion("please provide --dist-init-addr as host:port of head node")
    if parts and not (len(parts) > 1 and parts[1].isdigit()):
        message = f"invalid literal for int() with base 10: {parts[-1]!r}"
        raise Failed("ValueError", message, "" if has_attention else "Scheduler")


def _check_parallel(args: Arguments, node: Node, sizes: tuple[int, int]) -> None:
    tensor, pipeline = sizes
    if node.has_dp_attention and tensor % node.data_parallel:
        raise assertion("")
    if (tensor * pipeline) % node.num_nodes:
        raise assertion("tp_size must be divisible by number of nodes")
    if node.data_parallel > 1 and node.num_nodes != 1 and not node.has_dp_attention:
        raise assertion("multi-node data parallel is not supported unless dp attention!")
    chunk = args["chunked_prefill_size"] or DEFAULT_CHUNK
    if node.has_dp_attention:
        chunk //= node.data_parallel
    if chunk > 0 and node.mode != "decode" and chunk % node.page_size:
        raise assertion("chunked_prefill_size must be divisible by page_size")
    if args["enable_two_batch_overlap"] and args["moe_a2a_backend"] == "none":
        raise Failed(
            "ValueError",
            "When enabling two batch overlap, moe_a2a_backend cannot be 'none'.",
            process="",
        )
    shares_experts = args["moe_a2a_backend"] != "none"
    experts = tensor if shares_experts else _either(args, "ep_size", "expert_parallel_size")
    if args["enable_eplb"] and experts <= 1 and args["ep_join_mode"] != "scale":
        raise assertion("")


def _check_speculation(args: Arguments) -> None:
    """The three sizes of a draft's tree: all are chosen, or none is given."""
    if args["speculative_algorithm"] not in DRAFTING or args["speculative_adaptive"]:
        return
    steps, width, tokens = (
        args[f"speculative_{name}"] for name in ("num_steps", "eagle_topk", "num_draft_tokens")
    )
    if steps is None and (width is not None or tokens is not None):
        raise assertion("")
    if steps is not None and width is None:
        message = "'>' not supported between instances of 'NoneType' and 'int'"
        raise Failed("TypeError", message, process="")


def _check_disaggregation(args: Arguments, node: Node, tensor: int) -> None:
    if node.mode == "decode":
        for name in ("tp", "dp"):
            if args[f"disaggregation_decode_{name}"] is not None:
                raise assertion(f"Cannot set --disaggregation-decode-{name} for the decode engine.")
    decode = args["disaggregation_decode_tp"]
    if node.mode == "prefill" and decode:
        larger, smaller = max(tensor, decode), min(tensor, decode)
        if larger % smaller:
            raise assertion(
                "Different tp size is supported only when one tp is multiple of the other. "
                f"decode_tp={decode}, prefill_tp={tensor}"
            )
    if node.mode != "null" and args["disaggregation_transfer_backend"] == "mooncake":
        _check_infiniband(args["disaggregation_ib_device"])


def _check_infiniband(text: str | None) -> None:
    if text is None:
        return
    devices = [x.strip() for x in text.split(",") if x.strip()]
    if not devices:
        raise Failed("ValueError", "No valid IB devices specified", "")
    if len(devices) != len(set(devices)):
        raise Failed("ValueError", f"Duplicate IB devices specified: {text}", "")
    if not os.path.isdir(INFINIBAND_FOLDER):
        raise Failed(
            "RuntimeError",
            f"InfiniBand sysfs path not found: {INFINIBAND_FOLDER}. Please ensure InfiniBand drivers are "
            "installed.",
            process="",
        )
    available = sorted(os.listdir(INFINIBAND_FOLDER))
    wrong = [x for x in devices if x not in available]
    if wrong:
        message = f"Invalid IB devices specified: {wrong}. Available devices: {available}"
        raise Failed("ValueError", message, "")


def _check_context(args: Arguments, tensor: int) -> None:
    context = int(args["dcp_size"] or 1)  # since 0.5.16; srt/distributed/parallel_state.py
    if tensor % context:
        message = (
            f"tensor_model_parallel_size ({tensor}) must be divisible by decode_context_parallel_size "
            f"({context})"
        )
        raise Failed("RuntimeError", message, "Scheduler")


def _attention_tensor(node: Node, tensor: int) -> int:
    """Over how many devices attention is split (srt/layers/dp_attention.py compute_dp_attention_world_info)."""
    return tensor // node.data_parallel if node.has_dp_attention else tensor


def _check_model(args: Arguments, checkpoint: Checkpoint, world: World, tensor: int) -> None:
    template = args["chat_template"]
    if template and template not in CHAT_TEMPLATES and not os.path.exists(template):
        raise Failed(
            "RuntimeError",
            f"Chat template {template} is not a built-in template name or a valid chat template file path.",
            process="",
        )
    per_device = checkpoint.num_heads // max(1, tensor)
    if checkpoint.num_heads % tensor:
        raise Failed(
            "AssertionError", f"{checkpoint.num_heads} is not divisible by {tensor}", "Scheduler"
        )
    if world.vendor == "amd" and checkpoint.is_mla and per_device % 16:
        raise Failed(
            "AssertionError",
            f"Aiter MLA only supports 16 or 128 number of heads. Provided {per_device} number of heads.",
            process="Scheduler",
        )
    method, named = args["quantization"], checkpoint.quantization
    if method and method not in COMPATIBLE.get(named or "", (method,)):
        raise Failed(
            "ValueError",
            f"Quantization method specified in the model config ({named}) does not match the quantization method "
            f"specified in the `quantization` argument ({method}).",
            process="",
        )
    if checkpoint.quantization == "modelopt_fp4" and not world.is_blackwell:
        raise Failed(
            "ValueError",
            "Current platform does not support NVFP4 quantization. Please use Blackwell and up.",
            process="Scheduler",
        )
    if checkpoint.quantization == "ascend" and world.vendor != "ascend":
        raise Failed("ValueError", "Unknown quantization method: ascend.", process="")
    limit = args["context_length"]
    if limit is not None and limit > checkpoint.max_position:
        raise Failed(
            "ValueError",
            f"Warning: User-specified context_length ({limit}) is greater than the derived context_length "
            f"({checkpoint.max_position}). This may lead to incorrect model outputs or CUDA errors. To allow "
            "overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
            process="",
        )


def _devices(node: Node, tensor: int, pipeline: int) -> int:
    if node.data_parallel > 1 and not node.has_dp_attention:
        return node.data_parallel * tensor * pipeline
    return tensor * pipeline // node.num_nodes


def _place(node: Node, tensor: int, pipeline: int) -> Parallel:
    return Parallel(
        mode="single", tensor=tensor, pipeline=pipeline, context=1, size=1, local=1, first_rank=0,
        is_headless=False, num_nodes=node.num_nodes, node_rank=node.node_rank,
        node_rank_within_dp=node.node_rank, nodes_within_dp=node.num_nodes,
        master_address="", master_port=0, address="", rpc_port=0, experts_share=tensor, config_hash="",
    )  # fmt: skip


def _settings(
    args: Arguments,
    release: Release,
    parts: tuple[Checkpoint, Parallel, Node],
    world: World,
    served: str,
) -> Settings:
    checkpoint, place, node = parts
    roles = {"prefill": "kv_producer", "decode": "kv_consumer"}
    kv: KvTransfer | None = None
    if node.mode in roles:
        kv = KvTransfer("none", roles[node.mode], "", 0, {}, fails_on_load_error=True)
    shown: dict[str, Any] = {k: v for k, v in args.values.items() if not isinstance(v, bytes)}
    return Settings(
        release=release,
        checkpoint=checkpoint,
        served_names=(served,),
        host=args["host"],
        port=args["port"],
        supervisor_port=None,
        parallel=place,
        addresses=Addresses(
            os.environ.get("SGLANG_HOST_IP") or world.address, "", 0, node.bootstrap_port
        ),
        kv=kv,
        features=Features(
            tool_parser=args["tool_call_parser"],
            has_auto_tools=True,
            reasoning_parser=args["reasoning_parser"],
            has_images=checkpoint.has_vision,
            takes_templates=True,
            api_keys=(args["api_key"],) if args["api_key"] else (),
            has_metrics=bool(args["enable_metrics"]),
        ),
        max_model_len=int(args["context_length"] or checkpoint.max_position),
        utilisation=float(args["mem_fraction_static"] or DEFAULT_MEMORY_FRACTION),
        cache_dtype=args["kv_cache_dtype"],
        block_size=node.page_size,
        kv_tokens=0,
        compatibility_hash="",
        shown=shown,
    )
