"""Does it fit: weights per device, and KV cache for one full request."""

from __future__ import annotations

from typing import NamedTuple

from .checkpoint import Checkpoint
from .failures import Failed
from .world import GIB, World, out_of_memory


class Share(NamedTuple):
    """How a checkpoint is cut over devices."""

    tensor: int
    pipeline: int
    experts: int
    context: int


class Demand(NamedTuple):
    """What the engine was told about memory; `is_fitted` where the longest request is to be as long as fits."""

    utilisation: float
    max_model_len: int
    is_fitted: bool
    cache_dtype: str
    draft_bytes: int
    explicit_kv_bytes: int | None


def weight_bytes(checkpoint: Checkpoint, share: Share) -> float:
    """Return the bytes of weights on one device."""
    dense = checkpoint.total_bytes - checkpoint.expert_bytes
    return (dense / share.tensor + checkpoint.expert_bytes / share.experts) / share.pipeline


def kv_tokens(world: World, checkpoint: Checkpoint, share: Share, demand: Demand) -> int:
    """Return how many tokens the KV cache of one rank holds.

    Raises:
        Failed: torch's out-of-memory error, or vLLM's about a cache too small for one request.
    """
    budget = world.memory_bytes * demand.utilisation
    weights = weight_bytes(checkpoint, share) + demand.draft_bytes / share.tensor
    if weights > world.memory_bytes or weights > budget:
        raise out_of_memory(world, 0, weights / max(1, checkpoint.num_layers))
    left = budget - weights - world.overhead_gib * GIB
    if demand.explicit_kv_bytes is not None:
        left = demand.explicit_kv_bytes
    if left <= 0:
        raise Failed(
            "ValueError",
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine.",
            process="EngineCore",
        )
    per_token = _bytes_per_token(checkpoint, share, demand.cache_dtype)
    needed = per_token * demand.max_model_len
    if needed > left and not demand.is_fitted:
        raise Failed(
            "ValueError",
            "To serve at least one request with the model's max seq len "
            f"({demand.max_model_len}), ({needed / GIB:.2f} GiB KV cache is needed, which is larger "
            f"than the available KV cache memory ({left / GIB:.2f} GiB). Based on the available "
            f"memory, the estimated maximum model length is {int(left / per_token)}. Try increasing "
            "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            process="EngineCore",
        )
    return int(left / per_token)


def _bytes_per_token(checkpoint: Checkpoint, share: Share, cache_dtype: str) -> float:
    per_token = checkpoint.kv_bytes_per_token / share.pipeline / share.context
    if not checkpoint.is_mla:
        per_token /= min(share.tensor, max(1, checkpoint.num_kv_heads))
    return per_token / 2 if cache_dtype.startswith("fp8") else per_token
