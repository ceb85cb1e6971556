"""vLLM's attention back end, asked for or the first that takes the settings, and whether it has decode contexts.

Sources: vllm platforms/cuda.py, platforms/rocm.py, v1/attention/backend.py, v1/worker/cp_utils.py@0.17.0 to 0.33.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .catalogue import read_attention
from .checkpoint import Checkpoint
from .command_line import Arguments
from .environment import is_on
from .failures import Failed
from .parallel import Version
from .world import World

Rows = dict[str, dict[str, Any]]

PLATFORMS = {"nvidia": "cuda", "amd": "rocm"}
LATENT_HEAD = (
    576  # kv_lora_rank and rotary part of every checkpoint with latents that the catalogue has
)


class Wanted(NamedTuple):
    """What a back end is chosen by.

    Args:
        rows: the release's back ends, by name.
    """

    args: Arguments
    version: Version
    rows: Rows
    world: World
    environ: dict[str, str]

    @property
    def contexts(self) -> int:
        """The size of decode context parallelism."""
        return int(self.args["decode_context_parallel_size"] or 1)


def attention_backend(wanted: Wanted, checkpoint: Checkpoint) -> str:
    """Return the name of the back end that every layer gets.

    Raises:
        Failed: a worker's ValueError (none takes the settings), or its AssertionError (decode contexts).
    """
    named, world = _named(wanted.args), wanted.world
    if world.vendor not in PLATFORMS:
        return "ASCEND" if world.vendor == "ascend" else (named or "CPU_ATTN")
    if not checkpoint.is_mla:
        return named or _without_latents(world)
    if world.vendor == "amd" and wanted.version < (0, 18):
        name = _of_old_rocm(wanted, named)
    elif named:
        reasons = _reasons(wanted, named)
        if reasons:
            said = f"Selected backend AttentionBackendEnum.{named} is not valid for this configuration."
            raise _value_error(f"{said} Reason: {reasons}")
        name = named
    else:
        name = _first(wanted)
    _check_decode_contexts(wanted, name)
    return name


def uses_aiter(args: Arguments, version: Version, environ: dict[str, str]) -> bool:
    """Return whether latents are attended to by AITER on AMD where no back end is asked for."""
    is_asked = is_on(environ, "VLLM_ROCM_USE_AITER") and is_on(
        environ, "VLLM_ROCM_USE_AITER_MLA", default=True
    )
    return is_asked or (version < (0, 18) and args["block_size"] == 1)


def _named(args: Arguments) -> str:
    config = args["attention_config"]
    in_config = config.get("backend") if isinstance(config, dict) else None
    name = str(args["attention_backend"] or in_config or "").upper()
    return "" if name == "AUTO" else name


def _without_latents(world: World) -> str:
    if world.vendor == "amd":
        return "TRITON_ATTN"
    return "FLASHINFER" if world.is_blackwell else "FLASH_ATTN"


def _of_old_rocm(wanted: Wanted, named: str) -> str:
    """Nothing is compared there but blocks of one token."""
    has_aiter = uses_aiter(wanted.args, wanted.version, wanted.environ)
    name = named or ("ROCM_AITER_MLA" if has_aiter else "TRITON_MLA")
    if name == "TRITON_MLA" and wanted.args["block_size"] == 1:
        raise _value_error(f" The selected backend, {name},does not support block size 1.")
    row = wanted.rows.get(name, {})
    if not row.get("is_mla") or "rocm" not in row.get("platforms", ()):
        raise _value_error(
            f" The selected backend, {name},is not MLA type while requested for MLA backend."
        )
    if name == "TRITON_MLA" and str(wanted.args["kv_cache_dtype"]).startswith("fp8"):
        reason = "FP8 Triton MLA not yet supported"
        raise Failed("NotImplementedError", reason, process="EngineCore")
    return name


def _first(wanted: Wanted) -> str:
    against = {name: _reasons(wanted, name) for name in _order(wanted)}
    for name, reasons in against.items():
        if not reasons:
            return name
    told = ", ".join(f"{name}: [{', '.join(reasons)}]" for name, reasons in against.items())
    config = (
        f"AttentionSelectorConfig(head_size={LATENT_HEAD}, dtype=torch.bfloat16, "
        f"kv_cache_dtype={wanted.args['kv_cache_dtype']}, block_size={wanted.args['block_size']}, use_mla=True, "
        "has_sink=False, use_sparse=False)"
    )
    platform = PLATFORMS[wanted.world.vendor]
    said = f"No valid attention backend found for {platform} with {config}."
    raise _value_error(f"{said} Reasons: {{{told}}}.")


def _order(wanted: Wanted) -> tuple[str, ...]:
    orders = read_attention().orders
    if wanted.world.vendor == "amd":
        has_aiter = uses_aiter(wanted.args, wanted.version, wanted.environ)
        return orders["rocm-aiter" if has_aiter else "rocm"]
    return orders["blackwell" if wanted.world.is_blackwell else "cuda"]


def _reasons(wanted: Wanted, name: str) -> list[str]:
    """What speaks against a back end of dense latent attention, in the order in which vLLM asks."""
    row, platform = wanted.rows.get(name, {}), PLATFORMS[wanted.world.vendor]
    if row.get("class") is None:
        return []  # a plugin brings it
    if platform not in row.get("platforms", ()):
        return ["ImportError"]
    is_blackwell = wanted.world.is_blackwell
    dtype = wanted.args["kv_cache_dtype"]
    found = []
    if dtype not in row.get("kv_cache_dtypes", [dtype]):
        found.append("kv_cache_dtype not supported")
    if _is_odd_block(wanted, row, platform):
        found.append("block_size not supported")
    if row.get("is_mla") is False:
        found.append("MLA not supported")
    if row.get("is_sparse"):
        found.append("non-sparse not supported")
    capability = "10.0" if is_blackwell else "9.0"
    if platform == "cuda" and capability not in row.get("capabilities", [capability]):
        found.append("compute capability not supported")
    if wanted.version >= (0, 33) and wanted.contexts > 1 and not row.get("returns_lse"):
        found.append("DCP not supported")
    if is_blackwell and name in read_attention().dense_on_hopper_alone:
        found.append("FlashMLA Dense is only supported on Hopper devices.")
    return found


def _is_odd_block(wanted: Wanted, row: dict[str, Any], platform: str) -> bool:
    """Whether none of a back end's sizes divides the block that is asked for, where the release compares them."""
    block, sizes = int(wanted.args["block_size"] or 0), row.get("block_sizes")
    is_compared = wanted.version >= ((0, 18) if platform == "cuda" else (0, 20))
    return bool(block and is_compared and sizes and all(block % size for size in sizes))


def _check_decode_contexts(wanted: Wanted, name: str) -> None:
    row = wanted.rows.get(name, {})
    impl = row.get("impl")
    if wanted.contexts <= 1 or impl is None or row.get("returns_lse"):
        return
    if wanted.version < (0, 20):
        said = (
            "DCP requires attention impls to return the softmax lse for decode, but the impl "
            f"{impl} does not return the softmax lse for decode."
        )
    else:
        said = (
            "Decode Context Parallelism (DCP) requires attention implementations to return the softmax LSE during "
            f"decode, but {impl} does not. Try a different backend by setting --attention-backend or disable DCP."
        )
    raise Failed("AssertionError", said, "Worker")


def _value_error(said: str) -> Failed:
    return Failed("ValueError", said, "Worker")
