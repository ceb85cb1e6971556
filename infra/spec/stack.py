"""The stack file's shape: every field an operator may write, with its type, unit and default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

Platform = Literal["aws-ec2", "aws-eks", "existing-hosts", "existing-kubernetes"]
Runtime = Literal["docker", "podman", "native"]
Placement = Literal["dedicated", "shared"]
LoadBalancing = Literal["internal", "hybrid", "external", "multi-port"]
RoleName = Literal["prefill", "decode", "unified"]
EngineName = Literal["vllm", "vllm-ascend", "sglang"]
RouterName = Literal["vllm-router", "sglang-router", "ascend-proxy"]
KvTransfer = Literal["nixl", "mooncake"]
Feature = Literal["tools", "reasoning", "vision", "prefix-caching"]

ROLE_ORDER: tuple[RoleName, ...] = ("unified", "prefill", "decode")

Scalar = StrictBool | StrictInt | float | StrictStr
FlagValue = Scalar | list[Scalar] | dict[str, object]
Positive = Annotated[StrictInt, Field(ge=1)]
PortNumber = Annotated[StrictInt, Field(ge=1, le=65535)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Id = Annotated[StrictStr, Field(pattern=r"^[a-z0-9][a-z0-9.\-]*$")]
# The character before NAME keeps a value such as sk-123 from being taken for a reference.
EnvironmentName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Section(BaseModel):
    """A map in the stack file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Engine(_Section):
    """`engine:` which release serves."""

    name: EngineName
    version: StrictStr
    image: StrictStr | None = None


class Draft(_Section):
    """`draft:` the draft model of speculative decoding."""

    checkpoint: Id
    num_speculative_tokens: Positive


class Router(_Section):
    """`router:` what spreads requests over the endpoints."""

    name: RouterName
    policy: StrictStr | None = None


class Weights(_Section):
    """`weights:` where checkpoints lie on a host, and what holds them."""

    path: Annotated[StrictStr, Field(pattern=r"^/[^\s]*[^\s/]$")] = "/models"
    storage: Literal["s3-to-nvme", "fsx-lustre", "efs", "local", "shared-mount", "pvc"] | None = (
        None
    )
    source: StrictStr | None = None
    revision: StrictStr | None = None
    load_target_s: Positive | None = None


class Tuning(_Section):
    """`tuning:` the host tuning profile and what is switched on beyond its defaults."""

    profile: Id
    enable: tuple[StrictStr, ...] = ()


class Capacity(_Section):
    """`capacity:` how the machines are bought, and how many addresses each takes."""

    kind: Literal["on-demand", "odcr", "capacity-block", "ultraserver"]
    network_layout: Literal["ip-saving", "maximum"] = "ip-saving"


class ExistingIngress(_Section):
    """`ingress: {existing: ID}`."""

    existing: StrictStr


class Kubernetes(_Section):
    """`kubernetes:` which workload kind carries the engine groups."""

    workload: Literal["leader-worker-set", "disaggregated-set"] = "leader-worker-set"


class SecretFromEnvironment(_Section):
    """A secret read from the operator's environment."""

    env: EnvironmentName


class SecretFromFile(_Section):
    """A secret read from a file of the operator's machine."""

    file: StrictStr


SecretReference = SecretFromEnvironment | SecretFromFile


class Waiver(_Section):
    """A finding that the operator accepts; always printed."""

    rule: Annotated[StrictStr, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$")]
    reason: Annotated[StrictStr, Field(min_length=3)]


class Role(_Section):
    """One role, or the defaults of every role. None means: not said here."""

    replicas: Positive | None = None
    data_parallel: Positive | None = None
    tensor_parallel: Positive | None = None
    pipeline_parallel: Positive | None = None
    decode_context_parallel: Positive | None = None
    expert_parallel: StrictBool | None = None
    load_balancing: LoadBalancing | None = None
    accelerator: Id | None = None
    max_model_len: Positive | None = None
    max_num_seqs: Positive | None = None
    max_num_batched_tokens: Positive | None = None
    gpu_memory_utilization: Fraction | None = None
    features: tuple[Feature, ...] | None = None
    flags: dict[StrictStr, FlagValue] = Field(default_factory=dict)
    env: dict[EnvironmentName, Scalar] = Field(default_factory=dict)
    devices_idle: Annotated[StrictInt, Field(ge=0)] | None = None


class Roles(_Section):
    """Either one unified role, or prefill and decode."""

    unified: Role | None = None
    prefill: Role | None = None
    decode: Role | None = None

    @model_validator(mode="after")
    def _is_unified_or_disaggregated(self) -> Roles:
        disaggregated = self.prefill is not None and self.decode is not None
        one_half = (self.prefill is None) != (self.decode is None)
        if one_half or disaggregated == (self.unified is not None):
            message = "write `unified` alone, or `prefill` and `decode` together"
            raise ValueError(message)
        return self

    def items(self) -> tuple[tuple[RoleName, Role], ...]:
        """The roles that are declared, in `ROLE_ORDER`."""
        found = ((name, getattr(self, name)) for name in ROLE_ORDER)
        return tuple((name, role) for name, role in found if role is not None)


class StackSpec(_Section):
    """The whole stack file after `extends` and `--set`."""

    summary: StrictStr = ""
    checkpoint: Id
    draft: Draft | None = None
    accelerator: Id | None = None
    engine: Engine
    platform: Platform
    runtime: Runtime = "docker"
    placement: Placement = "dedicated"
    roles: Roles
    defaults: Role = Role()
    kv_transfer: KvTransfer | None = None
    router: Router | None = None
    port: PortNumber = 8000
    weights: Weights = Weights()
    tuning: Id | Tuning | None = None
    capacity: Capacity | None = None
    ingress: Literal["none", "internal-load-balancer"] | ExistingIngress = "none"
    kubernetes: Kubernetes = Kubernetes()
    secrets: dict[EnvironmentName, SecretReference] = Field(default_factory=dict)
    waive: tuple[Waiver, ...] = ()
