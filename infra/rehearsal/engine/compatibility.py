"""NIXL's hash of what must be equal on prefill and decode, with the attention back end that a release takes by itself.

Sources: vllm kv_connector/v1/nixl/metadata.py@0.26.0 (``compute_nixl_compatibility_hash``), platforms/cuda.py and
rocm.py@0.26.0, cuda.py@0.33.0 (``_get_backend_priorities``; FlashInfer's kernels give no log-sum-exp, which decode
contexts need).
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from .checkpoint import Checkpoint
from .command_line import Arguments
from .environment import is_on
from .parallel import Version
from .settings import Release
from .world import BLACKWELL, World


def compatibility_hash(
    args: Arguments,
    release: Release,
    checkpoint: Checkpoint,
    world: World,
    environ: dict[str, str],
) -> str:
    """Return the hash of one process."""
    transfer = args["kv_transfer_config"]
    extra = transfer.get("kv_connector_extra_config") if isinstance(transfer, dict) else None
    factors: dict[str, Any] = {
        "vllm_version": release.version,
        "plugin": release.plugin,
        "model": checkpoint.path,
        "dtype": args["dtype"],
        "layers": checkpoint.num_layers,
        "attention_backend": attention_backend(args, release, checkpoint, world, environ),
        "cache_dtype": args["kv_cache_dtype"],
        "cross_layers_blocks": bool((extra or {}).get("enable_cross_layers_blocks")),
        "is_hybrid_cache_disabled": args["disable_hybrid_kv_cache_manager"],
    }
    config = args["speculative_config"]
    if release.numbers >= (0, 33) and isinstance(config, dict):
        factors["draft"] = [config.get("model"), config.get("method")]
    text = json.dumps(factors, sort_keys=True, default=str)
    return "".join(f"{zlib.crc32(f'{part}{text}'.encode()):08x}" for part in range(8))


def attention_backend(
    args: Arguments,
    release: Release,
    checkpoint: Checkpoint,
    world: World,
    environ: dict[str, str],
) -> str:
    """Return the name of the back end that is asked for, or chosen where none is."""
    named = str(args["attention_backend"] or "").upper()
    if named not in ("", "AUTO"):
        return named
    if world.vendor == "ascend":
        return "ASCEND"
    if world.vendor == "amd":
        is_aiter = uses_aiter(args, release.numbers, environ)
        family = "ROCM_AITER" if is_aiter else "TRITON"
        return f"{family}_{'MLA' if checkpoint.is_mla else 'ATTN'}"
    if world.accelerator not in BLACKWELL:
        return "FLASH_ATTN_MLA" if checkpoint.is_mla else "FLASH_ATTN"
    if not checkpoint.is_mla:
        return "FLASHINFER"
    return "CUTLASS_MLA" if int(args["decode_context_parallel_size"] or 1) > 1 else "FLASHINFER_MLA"


def uses_aiter(args: Arguments, version: Version, environ: dict[str, str]) -> bool:
    """Return whether latents are attended to by AITER on AMD."""
    is_asked = is_on(environ, "VLLM_ROCM_USE_AITER") and is_on(
        environ, "VLLM_ROCM_USE_AITER_MLA", default=True
    )
    return is_asked or (version < (0, 18) and args["block_size"] == 1)
