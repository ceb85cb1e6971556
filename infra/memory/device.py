"""One device of an engine process: what the engine may use of it, and what weights, draft and the rest take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from infra.catalog.schema import Accelerator, Checkpoint, Family, ModelShape
from infra.engines.memory_flags import MemoryFlags
from infra.memory.kv_cache import KvLayout
from infra.memory.overhead import OVERHEAD_GIB
from infra.memory.weights import GIB, Layout, weight_bytes_per_device

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What decides the memory of an engine process.

    Args:
        family: whose flags it speaks.
        flags: as its command line was read; canonical names without dashes.
        group_size: data-parallel size of its group.
        memory_share: the release's default of the share of a device that the engine may use.
        block_size: tokens of a KV block where no flag says it.
        draft: the draft model of speculative decoding, None without one.
    """

    family: Family
    flags: Mapping[str, object]
    group_size: int
    memory_share: float
    block_size: int
    accelerator: Accelerator
    checkpoint: Checkpoint
    draft: Checkpoint | None


class DeviceMemory(NamedTuple):
    """GiB of one device. `kv_gib` is what the parts leave, below 0 when they do not fit."""

    total_gib: float
    usable_gib: float
    weights_gib: float
    draft_gib: float
    overhead_gib: float

    @property
    def kv_gib(self) -> float:
        """Left for KV beside weights, draft and overhead."""
        return self.usable_gib - self.weights_gib - self.draft_gib - self.overhead_gib


def device_memory(load: EngineLoad) -> DeviceMemory | None:
    """The fullest device of a process; None when the checkpoint's shape is unknown."""
    if load.checkpoint.shape is None:
        return None
    layout = weight_layout(load)
    total_gib = load.accelerator.memory_mib / _MIB_PER_GIB
    draft_bytes = load.draft.size_bytes / layout.tensor if load.draft else 0.0
    return DeviceMemory(
        total_gib=total_gib,
        usable_gib=total_gib * memory_share(load),
        weights_gib=weight_bytes_per_device(load.checkpoint, layout) / GIB,
        draft_gib=draft_bytes / GIB,
        overhead_gib=OVERHEAD_GIB[load.family],
    )


def memory_share(load: EngineLoad) -> float:
    """The share of a device that the engine may use, 0 to 1: the flag's, or the release's default."""
    given = _flags(load).device_share
    return load.memory_share if given is None else given


def weight_layout(load: EngineLoad) -> Layout:
    """How weights are spread over the devices of the process's group."""
    flags = _flags(load)
    attention_ranks = load.group_size if flags.has_attention_ranks else 1
    return Layout(
        tensor=flags.tensor,
        attention_tensor=max(flags.tensor // attention_ranks, 1),
        pipeline=flags.pipeline,
        data=load.group_size if flags.spreads_over_ranks else 1,
        expert_parallel=flags.divides_experts,
        vision_on_every_device=flags.has_vision_everywhere,
    )


def kv_layout(load: EngineLoad) -> KvLayout:
    """How a rank of the process keeps its KV."""
    flags = _flags(load)
    return KvLayout(
        dtype=flags.kv_dtype,
        block_size=flags.block_tokens(load.block_size),
        decode_context_parallel=flags.decode_context,
        pipeline_parallel=flags.pipeline,
    )


def longest_request(family: Family, flags: Mapping[str, object], shape: ModelShape | None) -> int:
    """Tokens of the longest request that the engine admits: the flag's, else the model's context, else 0."""
    return MemoryFlags(family, flags).longest_request(shape.max_context if shape else 0)


def _flags(load: EngineLoad) -> MemoryFlags:
    return MemoryFlags(load.family, load.flags)
