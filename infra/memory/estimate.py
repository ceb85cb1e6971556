"""What a plan's roles hold per device, how long a context and how many requests fit, for `fab estimate`."""

from __future__ import annotations

from dataclasses import dataclass

from infra.engines.memory_flags import MemoryFlags
from infra.memory.device import (
    DeviceMemory,
    EngineLoad,
    device_memory,
    kv_layout,
    longest_request,
)
from infra.memory.kv_cache import kv_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLoad:
    """One role of a plan.

    Args:
        load: of its fullest process.
        num_ranks: data-parallel ranks over all replicas; each has KV of its own.
        num_processes: engine processes.
        num_devices: devices in use.
        num_hosts: hosts that it runs on.
    """

    role: str
    load: EngineLoad
    num_ranks: int
    num_processes: int
    num_devices: int
    num_hosts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEstimate:
    """What a role holds.

    Args:
        memory: GiB of its fullest device.
        kv_tokens: that one rank keeps; the engine prints the same figure at start.
        max_context: tokens of the longest request that one rank could hold, no more than the model's context.
        longest_request: tokens that the engine would admit.
        request_tokens: the length that `concurrent_requests` is counted at.
        concurrent_requests: over all ranks, no more than the engine's own limit of sequences; 0 of a length that it
            does not admit.
    """

    load: RoleLoad
    memory: DeviceMemory
    kv_tokens: int
    max_context: int
    longest_request: int
    request_tokens: int
    concurrent_requests: int

    @property
    def fits(self) -> bool:
        """Whether weights leave room for one request of the length that the engine admits."""
        return self.kv_tokens >= self.longest_request


def estimate_role(role: RoleLoad, request_tokens: int | None = None) -> RoleEstimate | None:
    """What one role holds; None when the checkpoint's shape is unknown.

    Args:
        role: the role's fullest process and its counts.
        request_tokens: length of the requests to count; default: the longest that the engine admits.
    """
    load, shape = role.load, role.load.checkpoint.shape
    memory = device_memory(load)
    if memory is None or shape is None:
        return None
    tokens = kv_tokens(shape, max(memory.kv_gib, 0.0), kv_layout(load))
    longest = longest_request(load.family, load.flags, shape)
    length = request_tokens or longest
    limit = MemoryFlags(load.family, load.flags).most_sequences(0)
    fitting = (
        tokens // length if 0 < length <= (longest or length) else 0
    )  # no longer one is admitted
    return RoleEstimate(
        load=role,
        memory=memory,
        kv_tokens=tokens,
        max_context=min(tokens, shape.max_context),
        longest_request=longest,
        request_tokens=length,
        concurrent_requests=role.num_ranks * (min(fitting, limit) if limit else fitting),
    )
