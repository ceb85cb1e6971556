"""NIXL's hash of what must be equal on prefill and decode.

Source: vllm kv_connector/v1/nixl/metadata.py and nixl/connector.py@0.22.1, nixl_connector.py@0.17.0
(``compute_nixl_compatibility_hash``, ``prefer_cross_layer_blocks``).
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from .checkpoint import Checkpoint
from .command_line import Arguments
from .settings import Release

CROSSING_BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")


def compatibility_hash(
    args: Arguments, release: Release, checkpoint: Checkpoint, backend: str
) -> str:
    """Return the hash of one process, whose layers have an attention back end."""
    transfer = args["kv_transfer_config"]
    extra = transfer.get("kv_connector_extra_config") if isinstance(transfer, dict) else None
    factors: dict[str, Any] = {
        "vllm_version": release.version,
        "plugin": release.plugin,
        "model": checkpoint.path,
        "dtype": args["dtype"],
        "layers": checkpoint.num_layers,
        "attention_backend": backend,
        "cache_dtype": args["kv_cache_dtype"],
        "cross_layers_blocks": backend in CROSSING_BACKENDS
        and str((extra or {}).get("enable_cross_layers_blocks")).lower() == "true",
    }
    if release.numbers >= (0, 22):
        factors["is_hma_enabled"] = not args["disable_hybrid_kv_cache_manager"]
    config = args["speculative_config"]
    if release.numbers >= (0, 33) and isinstance(config, dict):
        factors["draft"] = [config.get("model"), config.get("method")]
    text = json.dumps(factors, sort_keys=True, default=str)
    return "".join(f"{zlib.crc32(f'{part}{text}'.encode()):08x}" for part in range(8))
