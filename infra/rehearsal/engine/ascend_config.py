"""What the vllm-ascend plugin checks on top of vLLM, by plugin release."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .checkpoint import Checkpoint
from .command_line import Arguments
from .environment import is_on
from .failures import Failed, assertion, invalid
from .kv_transfer import KvTransfer, check_ascend_sizes
from .parallel import Parallel, Version
from .value_checks import Wrong, wrong_values

BALANCE_MESSAGE = (
    "enable_balance_scheduling only supports PD-mixed mode (kv_role='kv_both' or no "
    "kv_transfer_config), and is not supported in PD-disaggregated mode "
    "(kv_role='kv_producer'/'kv_consumer')."
)
EARLY_BALANCE_MESSAGE = (
    "VLLM_ASCEND_BALANCE_SCHEDULING (balance scheduling) only supports PD-mixed mode "
    "(kv_role='kv_both' or no kv_transfer_config), and is not supported in PD-disaggregated mode "
    "(kv_role='kv_producer'/'kv_consumer')."
)
RECOMPUTE_MESSAGE = (
    "recompute_scheduler_enable can only be enabled in PD-disaggregated mode "
    "(kv_role='kv_producer' or 'kv_consumer'), and is not supported in PD-mixed mode."
)
RECOMPUTE_DECODE_MESSAGE = (
    "recompute_scheduler_enable can only be enabled on PD-disaggregated D nodes "
    "(kv_role='kv_consumer', but got kv_role={role!r}), and is not supported in PD-mixed mode."
)
SHARDING_MESSAGE = (
    "additional_config.layer_sharding can only be enabled in PD-disaggregated's P node."
)
EARLY_SHARDING_MESSAGE = (
    "additional_config.layer_sharding is only supported on P nodes (kv_role='kv_producer') when KV "
    "transfer is enabled."
)
# vllm_ascend/envs.py@0.22.1rc1: what its configuration reads by int().
NUMBER_VARIABLES = (
    "MSMONITOR_USE_DAEMON", "VLLM_ASCEND_BALANCE_SCHEDULING", "VLLM_ASCEND_ENABLE_FLASHCOMM1",
    "VLLM_ASCEND_ENABLE_FUSED_MC2", "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE", "VLLM_ASCEND_ENABLE_MLAPO",
    "VLLM_ASCEND_ENABLE_NZ", "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE",
    "VLLM_ASCEND_FUSION_OP_TRANSPOSE_KV_CACHE_BY_BLOCK",
)  # fmt: skip


def plugin_version(text: str) -> Version:
    """Return the numbers of a plugin release, without its release-candidate suffix."""
    return tuple(int(x) for x in re.findall(r"\d+", text.split("rc", maxsplit=1)[0])[:3])


class View(NamedTuple):
    """The configuration as the plugin sees it."""

    args: Arguments
    parallel: Parallel
    kv: KvTransfer | None
    checkpoint: Checkpoint
    environ: dict[str, str]

    @property
    def additional(self) -> dict[str, Any]:
        """The plugin's own configuration."""
        config = self.args["additional_config"]
        return config if isinstance(config, dict) else {}

    @property
    def compilation(self) -> dict[str, Any]:
        """The compilation configuration that was given."""
        config = self.args["compilation_config"]
        return config if isinstance(config, dict) else {}

    @property
    def role(self) -> str | None:
        """The KV role, None without KV transfer."""
        return self.kv.role if self.kv is not None else None


def check_additional(args: Arguments) -> None:
    """Check the plugins' own configuration: what is no JSON is a text to vLLM's parser, and no map to its classes.

    Raises:
        Failed: it is no map.
    """
    if isinstance(args["additional_config"], str):
        value = args["additional_config"]
        raise wrong_values(
            "VllmConfig",
            [
                Wrong(
                    "additional_config.dict[any,any]",
                    "Input should be a valid dictionary",
                    "dict_type",
                    value,
                ),
                Wrong(
                    "additional_config.is-instance[SupportsHash]",
                    "Input should be an instance of SupportsHash",
                    "is_instance_of",
                    value,
                ),
            ],
        )


def without_overlap(args: Arguments, version: Version) -> Arguments:
    """Return the arguments without dual-batch overlap, which the plugin puts back to off since 0.22."""
    if version < (0, 22):
        return args
    return Arguments({**args.values, "enable_dbo": False, "ubatch_size": 0}, args.given)


def check_ascend(view: View, plugin: str, known_keys: frozenset[str]) -> list[str]:
    """Check a configuration as the plugin's platform code does.

    Returns:
        Warnings.

    Raises:
        Failed: the plugin's own ValueError or AssertionError.
    """
    version = plugin_version(plugin)
    unknown = [key for key in view.additional if key not in known_keys]
    if version >= (0, 22):
        _check_numbers(view.environ)
    # what the release does not read has no effect: scheduler_config before 0.26, layer_sharding from there on
    read = {key: value for key, value in view.additional.items() if key in known_keys}
    if view.kv is not None:
        check_ascend_sizes(view.kv, view.parallel)
    _check_graphs(view)
    is_mixed = view.role in (None, "kv_both")
    if _is_balancing(view, read) and not is_mixed and version >= (0, 18):
        raise Failed("ValueError", BALANCE_MESSAGE if version >= (0, 22) else EARLY_BALANCE_MESSAGE)
    _check_recompute(read, version, view.role)
    _check_interleave(view)
    _check_flash_comm(view, version)
    _check_decode_only(view, read, version)
    return [f"unknown key in additional_config: {key}" for key in unknown]


def _check_numbers(environ: dict[str, str]) -> None:
    for name in NUMBER_VARIABLES:
        text = environ.get(name, "0")
        try:
            int(text)
        except ValueError:
            reason = f"invalid literal for int() with base 10: {text!r}"
            raise invalid("VllmConfig", reason) from None


def _check_graphs(view: View) -> None:
    mode = str(view.compilation.get("cudagraph_mode", "")).upper()
    uses_graphs = not view.args["enforce_eager"] and mode != "NONE"
    if uses_graphs and view.environ.get("ASCEND_LAUNCH_BLOCKING", "0") == "1":
        raise Failed(
            "ValueError",
            "ACL graph is incompatible with ASCEND_LAUNCH_BLOCKING=1. Please unset "
            "ASCEND_LAUNCH_BLOCKING or set it to 0. If you need ASCEND_LAUNCH_BLOCKING for debugging, "
            "consider other methods",
        )


def _is_balancing(view: View, additional: dict[str, Any]) -> bool:
    scheduler = additional.get("scheduler_config") or {}
    key = "enable_balance_scheduling"
    if key in scheduler or key in additional:
        return bool(scheduler.get(key, additional.get(key)))
    return is_on(view.environ, "VLLM_ASCEND_BALANCE_SCHEDULING")


def _check_recompute(additional: dict[str, Any], version: Version, role: str | None) -> None:
    scheduler = additional.get("scheduler_config") or {}
    key = "recompute_scheduler_enable"
    if not (scheduler.get(key) or additional.get(key)):
        return
    # vllm_ascend/platform.py@0.26.0rc1 ignores it on a producer, with a warning
    if role in (None, "kv_both") and version >= (0, 23):
        raise Failed("ValueError", RECOMPUTE_DECODE_MESSAGE.format(role=role))
    if role in (None, "kv_both") and version >= (0, 18):
        raise Failed("ValueError", RECOMPUTE_MESSAGE)


def _check_interleave(view: View) -> None:
    args, parallel, kv = view.args, view.parallel, view.kv
    block = args["block_size"] or 128
    interleave = args["cp_kv_cache_interleave_size"] or 1
    if kv is not None and parallel.context > 1 and block != interleave:
        raise assertion(
            f"cp_kv_cache_interleave_size({interleave}) and block_size({block}) needs to be equal if "
            "use pcp or dcp > 1 in P/D disaggregate and kv pool scenario."
        )
    if parallel.size > 1 and (args["prefill_context_parallel_size"] or 1) > 1:
        raise Failed(
            "ValueError",
            "PCP (Prefill Context Parallelism) and DP (Data Parallelism) cannot be enabled "
            "simultaneously in the current version of vLLM Ascend.",
        )


def _check_flash_comm(view: View, version: Version) -> None:
    args, parallel, checkpoint = view.args, view.parallel, view.checkpoint
    is_enabled = is_on(view.environ, "VLLM_ASCEND_ENABLE_FLASHCOMM1")
    if not view.additional.get("enable_flashcomm1", is_enabled):
        return
    if version < (0, 18) and checkpoint.has_vision:
        raise assertion("Flash Comm V1 is not supported for VL models.")
    if parallel.tensor <= 1:
        raise assertion("Flash Comm v1 is only supported when tp_size > 1.")
    if checkpoint.num_experts and not args["enable_expert_parallel"]:
        raise assertion("Flash Comm v1 requires enable_expert_parallel=True for MoE models.")
    sizes = view.compilation.get("cudagraph_capture_sizes") or args["cudagraph_capture_sizes"]
    if sizes and not args["enforce_eager"] and not any(x % parallel.tensor == 0 for x in sizes):
        raise assertion(
            f"cudagraph_capture_sizes {sizes} does not containvalues that are multiples of tp_size "
            f"{parallel.tensor}"
        )


def _check_decode_only(view: View, additional: dict[str, Any], version: Version) -> None:
    args, role = view.args, view.role
    is_consumer = role in ("kv_consumer", "kv_both")
    if additional.get("enable_kv_nz") and not is_consumer:
        raise Failed(
            "NotImplementedError",
            "enable_kv_nz is only supported in pd scenario and can only be used in D node.",
        )
    # platform.py _validate_layer_sharding_config@0.18.0, 0.22.1rc1
    if additional.get("layer_sharding") and role != "kv_producer" and version >= (0, 18):
        raise Failed(
            "ValueError", SHARDING_MESSAGE if version >= (0, 22) else EARLY_SHARDING_MESSAGE
        )
    sizes = additional.get("finegrained_tp_config") or {}
    if sizes.get("oproj_tensor_parallel_size", 0) > 0:
        if args["enforce_eager"]:
            raise assertion("oproj_tensor_parallel_size is only supported in graph mode")
        if not is_consumer:
            raise assertion(
                "oproj_tensor_parallel_size is only supported in pd scenario and can only be used in "
                "D node."
            )


def check_quantization(args: Arguments, checkpoint: Checkpoint) -> None:
    """The quantisation methods that the Ascend platform takes.

    Raises:
        Failed: the checkpoint needs another platform.
    """
    method = args["quantization"] or checkpoint.quantization
    if method not in (None, "ascend", "compressed-tensors", "fp8"):
        raise invalid("ModelConfig", f"{method} quantization is currently not supported in npu.")
