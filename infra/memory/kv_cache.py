"""KV cache: bytes per token, room on a device, tokens that fit."""

from __future__ import annotations

from dataclasses import dataclass

from infra.catalog.schema import ModelShape
from infra.memory.weights import GIB

# Activations, graphs and workspaces beside weights and KV. Calibrated on one start-up log: Kimi-K2-Thinking,
# TP8 on H200, 46.80 GiB of KV measured where arithmetic leaves 54.8 (vLLM recipe Kimi-K2-Thinking, 2025-11-06).
OVERHEAD_GIB = 8.0
FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Memory of one device in GiB: what the engine may use, weights, and what is left for KV."""

    usable_gib: float
    weights_gib: float

    @property
    def left_gib(self) -> float:
        """Left beside weights, overhead not yet taken."""
        return self.usable_gib - self.weights_gib


def kv_bytes_per_token(shape: ModelShape, *, kv_cache_dtype: str = "auto") -> int:
    """One token's KV over all layers: multi-head latent attention keeps one copy per tensor-parallel group."""
    width = 1 if kv_cache_dtype in FP8 else 2
    return shape.num_layers * (shape.kv_lora_rank + shape.qk_rope_head_dim) * width


def request_gib(
    shape: ModelShape, tokens: int, *, kv_cache_dtype: str, decode_context_parallel: int
) -> float:
    """KV of one request of that length on one device."""
    return (
        kv_bytes_per_token(shape, kv_cache_dtype=kv_cache_dtype)
        * tokens
        / decode_context_parallel
        / GIB
    )


def kv_tokens(
    shape: ModelShape,
    available_gib: float,
    *,
    block_size: int,
    kv_cache_dtype: str,
    decode_context_parallel: int,
) -> int:
    """Tokens that fit: whole blocks are counted first, then multiplied by the context-parallel size."""
    page = block_size * kv_bytes_per_token(shape, kv_cache_dtype=kv_cache_dtype)
    return int(available_gib * GIB // page) * block_size * decode_context_parallel
