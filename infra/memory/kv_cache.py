"""KV cache: bytes per token, GiB of a request, tokens that fit.

Source of the arithmetic: vLLM v1/kv_cache_interface.py and v1/core/kv_cache_utils.py 0.22.1 (MLA keeps one latent
vector and one rotary key per token and layer, the same on every device of a tensor-parallel group).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from infra.catalog.schema import ModelShape
from infra.memory.weights import GIB

FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


class KvLayout(NamedTuple):
    """How one rank keeps its KV.

    Args:
        dtype: the engine's word (`auto`, `fp8`, `fp8_e4m3`, …); `auto` is the model's bf16.
        block_size: tokens of a block on one device.
        decode_context_parallel: devices over which the tokens of a request are spread.
        pipeline_parallel: stages over which the layers are spread.
    """

    dtype: str
    block_size: int
    decode_context_parallel: int
    pipeline_parallel: int


def kv_bytes_per_token(
    shape: ModelShape, *, kv_cache_dtype: str = "auto", pipeline_parallel: int = 1
) -> int:
    """One token's KV in bytes over the layers of the longest stage, on each device that holds the token."""
    width = 1 if kv_cache_dtype in FP8 else 2
    num_layers = math.ceil(shape.num_layers / pipeline_parallel)
    return num_layers * (shape.kv_lora_rank + shape.qk_rope_head_dim) * width


def request_gib(shape: ModelShape, tokens: int, layout: KvLayout) -> float:
    """KV of one request of that length on one device, in GiB; blocks are not rounded up."""
    per_token = kv_bytes_per_token(
        shape, kv_cache_dtype=layout.dtype, pipeline_parallel=layout.pipeline_parallel
    )
    return per_token * tokens / layout.decode_context_parallel / GIB


def kv_tokens(shape: ModelShape, available_gib: float, layout: KvLayout) -> int:
    """Tokens that fit a rank: whole blocks are counted first, then multiplied by the context-parallel size.

    The engine rounds down to blocks on the device and multiplies afterwards, so eight times as many devices
    hold exactly eight times as many tokens; two published runs differ by one block before the factor
    (8 × 11,174 blocks, not 11,173).
    """
    per_token = kv_bytes_per_token(
        shape, kv_cache_dtype=layout.dtype, pipeline_parallel=layout.pipeline_parallel
    )
    blocks = int(available_gib * GIB // (layout.block_size * per_token))
    return max(blocks, 0) * layout.block_size * layout.decode_context_parallel
