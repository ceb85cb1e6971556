"""What a role has been resolved to, before any host is known: the input of every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from infra.catalog.host_networks import HostNetwork
from infra.catalog.schema import Accelerator, Checkpoint, FlagData, Image, Mount, Release
from infra.spec.stack import KvTransfer, LoadBalancing, RoleName, Runtime

OriginKind = Literal[
    "accelerator", "engine", "checkpoint", "recipe", "role", "operator", "compiler"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who said a value.

    Args:
        kind: the layer of the merge order.
        name: the file's id, or the field of the stack that led to it.
        detail: why, for `--explain`; may be empty.
    """

    kind: OriginKind
    name: str
    detail: str = ""

    def __str__(self) -> str:
        """`recipe vllm-gb200-nvfp4`, with the detail behind it."""
        return f"{self.kind} {self.name}" + (f" ({self.detail})" if self.detail else "")


class Flag(NamedTuple):
    """One flag of a command line. `name` without dashes; True and False are switches."""

    name: str
    value: FlagData
    origin: Origin


class Variable(NamedTuple):
    """One environment variable; the value may hold `{address}`, `{interface}`, `{rdma_devices}`."""

    name: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsOnHost:
    """A checkpoint and the directory that argument vectors name, the same on every host."""

    checkpoint: Checkpoint
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding with a draft model."""

    weights: WeightsOnHost
    num_speculative_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """One role of a stack, joined with the catalogue. Sizes count devices, tokens or ranks.

    `flags` and `env` are those of catalogue, recipe and operator, in merge order, one per name;
    what the compiler owns (sizes, ranks, addresses, ports) is not among them. `image` is the release's for the role,
    `network` what its processes reach other hosts over, where that asks for libraries of its own.
    """

    role: RoleName
    replicas: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    decode_context_parallel: int
    expert_parallel: bool
    load_balancing: LoadBalancing
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float | None
    devices_idle: int
    accelerator: Accelerator
    release: Release
    image: Image | None
    network: HostNetwork | None
    weights: WeightsOnHost
    speculation: Speculation | None
    served_model_name: str
    kv_transfer: KvTransfer | None
    runtime: Runtime
    features: tuple[str, ...]
    flags: Mapping[str, Flag]
    env: Mapping[str, Variable]
    env_prepend: Mapping[str, Variable]
    mounts: tuple[Mount, ...]
    recipe: str | None

    @property
    def rank_devices(self) -> int:
        """Devices of one data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel
