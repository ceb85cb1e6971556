"""Bytes of weights that one device holds, by the parallel layout."""

from __future__ import annotations

import math
from typing import NamedTuple

from infra.catalog.schema import Checkpoint, ModelShape

_BYTES = 2  # of what no build quantises: gates, `kv_b` and embeddings
GIB = 2**30


class Layout(NamedTuple):
    """How one replica spreads over devices.

    `data` counts ranks. Without expert parallel experts are split over tensor × data; with it they
    are divided among the same devices. `attention_tensor` is over how many devices attention is split:
    `tensor`, but for SGLang's data-parallel attention, where each of its ranks has a copy.
    """

    tensor: int
    attention_tensor: int
    pipeline: int
    data: int
    expert_parallel: bool
    vision_on_every_device: bool


def weight_bytes_per_device(checkpoint: Checkpoint, layout: Layout) -> float:
    """Bytes on the fullest device.

    Source of the parts: config.json and the modelling code of Kimi-K2 (DeepSeek-V3 attention): `q_a` and
    `kv_a` are replicated, `q_b`, `kv_b` and `o` are split; vLLM keeps an absorbed copy of `kv_b`.
    """
    shape = checkpoint.shape
    if shape is None:
        return checkpoint.size_bytes / layout.tensor
    parts, linear = _attention(shape), checkpoint.linear_bytes
    replicated = shape.num_layers * (linear * parts.replicated + _BYTES * parts.gate)
    # `kv_b` and its absorbed copy
    attention = shape.num_layers * (linear * parts.split + 2 * _BYTES * parts.kv_b)
    dense = linear * _dense(shape) + 2 * _BYTES * shape.vocab_size * shape.hidden_size
    split = attention / layout.attention_tensor + dense / layout.tensor
    experts = checkpoint.expert_bytes * _expert_share(layout, shape.num_experts)
    vision = 0.0
    if shape.vision is not None:
        vision = shape.vision.size_bytes / (1 if layout.vision_on_every_device else layout.tensor)
    return (replicated + split + experts) / layout.pipeline + vision


def _expert_share(layout: Layout, num_experts: int) -> float:
    """The part of all experts on the fullest device; whole experts may not divide evenly."""
    num_devices = layout.tensor * layout.data
    if not layout.expert_parallel:
        return 1 / num_devices
    return math.ceil(num_experts / num_devices) / num_experts


class _Attention(NamedTuple):
    """Parameters of one layer's attention: on every device, of the gate there, split over devices, and of `kv_b`."""

    replicated: int
    gate: int
    split: int
    kv_b: int


def _attention(shape: ModelShape) -> _Attention:
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    q_a = hidden * shape.q_lora_rank
    kv_a = hidden * (shape.kv_lora_rank + shape.qk_rope_head_dim)
    q_b = shape.q_lora_rank * heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim)
    kv_b = shape.kv_lora_rank * heads * (shape.qk_nope_head_dim + shape.v_head_dim)
    output = heads * shape.v_head_dim * hidden
    gate = hidden * shape.num_experts
    return _Attention(replicated=q_a + kv_a, gate=gate, split=q_b + output, kv_b=kv_b)


def _dense(shape: ModelShape) -> int:
    """Parameters of the dense layers and the shared experts."""
    moe_layers = shape.num_layers - shape.num_dense_layers
    shared = (
        moe_layers * shape.num_shared_experts * 3 * shape.hidden_size * shape.moe_intermediate_size
    )
    dense = shape.num_dense_layers * 3 * shape.hidden_size * shape.intermediate_size
    return shared + dense
