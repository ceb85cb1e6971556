"""The stack file's shape: every field an operator may write, with its type, unit and default."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from infra.spec.edge import Edge, EdgeTls
from infra.spec.section import EnvironmentName, Secrets, Section

Platform = Literal["aws-ec2", "aws-eks", "gcp-gce", "existing-hosts", "existing-kubernetes"]
Cloud = Literal["aws", "gcp"]
# Whose machines are bought for a stack; platforms that exist already are not here.
CLOUDS: Mapping[Platform, Cloud] = {"aws-ec2": "aws", "aws-eks": "aws", "gcp-gce": "gcp"}
CLOUD_NAMES: Mapping[Cloud, str] = {"aws": "AWS", "gcp": "Google"}
# Platforms whose processes Kubernetes starts and watches.
KUBERNETES: frozenset[Platform] = frozenset({"aws-eks", "existing-kubernetes"})
Runtime = Literal["docker", "podman", "native"]
# What carries the engine groups there: a set for each, or the prefill/decode unit as one.
Workload = Literal["leader-worker-set", "disaggregated-set"]
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
# An id of the catalogue, or what a hub or a vendor calls the same.
Named = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/ \-]*$")]
ServedName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+\-]*$")]


def _network(text: str) -> str:
    """A network as `ipaddress` writes it; an address alone is a network of one.

    Raises:
        PydanticCustomError: the text is none, or names a host within a network.
    """
    what, fix = "is no network", "Write address/length: 10.0.0.0/8, 2001:db8::/32."
    if "%" not in text:  # a zone, which is an interface's name on one host
        try:
            network = ipaddress.ip_network(text, strict=False)
            return str(ipaddress.ip_network(text))
        except ValueError as error:
            if "host bits" in str(error):
                what = "names a host within its network"
                fix = f"Write {network}, or the address alone."
    raise PydanticCustomError("form", "{what}", {"what": what, "fix": fix})


Network = Annotated[StrictStr, AfterValidator(_network)]


class Engine(Section):
    """Which release serves."""

    name: EngineName = Field(description="The engine: vllm (NVIDIA, AMD), vllm-ascend, sglang.")
    version: StrictStr = Field(
        description="A release of infra/catalog/engines/<name>/, in quotes if it looks like a number."
    )
    image: StrictStr | None = Field(
        default=None, description="Container image; default: the release's for the accelerator."
    )


class Draft(Section):
    """The draft model of speculative decoding."""

    checkpoint: Named = Field(
        description="A draft of infra/catalog/checkpoints/ that was trained for the checkpoint."
    )
    num_speculative_tokens: Positive = Field(description="Tokens that the draft proposes per step.")


class Router(Section):
    """What spreads requests over the endpoints."""

    name: RouterName = Field(
        description="vllm-router (vllm), sglang-router (sglang), ascend-proxy (vllm-ascend)."
    )
    policy: StrictStr | None = Field(
        default=None, description="How the router chooses an endpoint; default: its own."
    )


class Weights(Section):
    """Where checkpoints lie on a host, and what holds them."""

    path: Annotated[StrictStr, Field(pattern=r"^/[^\s]*[^\s/]$")] = Field(
        default="/models",
        description="Directory on every host; checkpoints lie under <path>/<checkpoint>/<revision>.",
    )
    storage: Literal["s3-to-nvme", "fsx-lustre", "efs", "local", "shared-mount", "pvc"] | None = (
        Field(default=None, description="What holds the weights.")
    )
    source: StrictStr | None = Field(
        default=None,
        description="Where they are copied from: huggingface, modelscope (each also +https://MIRROR), "
        "s3://bucket/prefix, s3+https://STORE/bucket/prefix, https://server/path, /path or host:NAME; "
        "default: the catalogue's hub.",
    )
    revision: StrictStr | None = Field(
        default=None, description="Commit of the hub's repository; default: the catalogue's."
    )
    load_target_s: Positive | None = Field(
        default=None, description="Seconds that loading may take; sizes the storage."
    )


class Tuning(Section):
    """The host tuning profile and what is switched on beyond its defaults."""

    profile: Id = Field(description="A profile of infra/catalog/tuning/.")
    enable: tuple[StrictStr, ...] = Field(
        default=(), description="Ids of items that are off by default."
    )


class Capacity(Section):
    """How the machines are bought, and how many addresses each takes."""

    kind: Literal["on-demand", "odcr", "capacity-block", "ultraserver", "reservation"] = Field(
        description="How AWS provides the machines, or Google (reservation); ids of reservations are `pulumi config`."
    )
    network_layout: Literal["ip-saving", "maximum", "addressed"] = Field(
        default="ip-saving",
        description="ip-saving: one address a host; maximum: all that carries ordinary traffic, too; "
        "addressed: `efa` and never `efa-only`, one address each, for what wants that (AWS PCS).",
    )


class ExistingIngress(Section):
    """An entry point that exists already."""

    existing: StrictStr = Field(description="Its id in the cloud.")


class Kubernetes(Section):
    """Which workload kind carries the engine groups."""

    workload: Workload = Field(
        default="leader-worker-set",
        description="leader-worker-set: each replica for itself; disaggregated-set: prefill and decode as one unit, "
        "which is rolled out together and has its NVLink domain to itself.",
    )


class Waiver(Section):
    """A finding that the operator accepts; always printed."""

    rule: Annotated[StrictStr, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")] = Field(
        description="A rule's id; docs/rules.md lists them."
    )
    reason: Annotated[StrictStr, Field(min_length=3)] = Field(
        description="Why it is accepted here."
    )


class Role(Section):
    """One role, or the defaults of every role. None means: not said here."""

    replicas: Positive | None = Field(
        default=None, description="Independent engine groups; default 1."
    )
    data_parallel: Positive | None = Field(
        default=None, description="Data-parallel ranks of one replica; default 1."
    )
    tensor_parallel: Positive | None = Field(
        default=None, description="Devices that share each layer of a rank; default 1."
    )
    pipeline_parallel: Positive | None = Field(
        default=None, description="Stages of layers of a rank; default 1."
    )
    decode_context_parallel: Positive | None = Field(
        default=None,
        description="Parts that the KV cache of a rank is split into; divides tensor_parallel.",
    )
    expert_parallel: StrictBool | None = Field(
        default=None, description="Divide whole experts among devices instead of splitting each."
    )
    load_balancing: LoadBalancing | None = Field(
        default=None,
        description="internal, hybrid, multi-port: one process per host; external: one per rank. Default internal; "
        "not read when data_parallel is 1.",
    )
    accelerator: Named | None = Field(
        default=None, description="Chip of this role's hosts; default: the stack's."
    )
    max_model_len: Positive | None = Field(
        default=None, description="Longest request in tokens, prompt and answer."
    )
    max_num_seqs: Positive | None = Field(
        default=None, description="Requests that one rank works on at once."
    )
    max_num_batched_tokens: Positive | None = Field(
        default=None, description="Tokens of one step of a rank."
    )
    gpu_memory_utilization: Fraction | None = Field(
        default=None, description="Share of a device's memory that the engine may use."
    )
    features: tuple[Feature, ...] | None = Field(
        default=None,
        description="Features of the checkpoint's entry; default: those that are on there.",
    )
    flags: dict[StrictStr, FlagValue] = Field(
        default_factory=dict,
        description="Further flags of the engine, without dashes; what the compiler owns is refused.",
    )
    env: dict[EnvironmentName, Scalar] = Field(
        default_factory=dict,
        description="Further environment variables; booleans become 1 and 0. {address}, {interface} and {rdma_devices} "
        "in a value are those of the host; a variable with {rdma_devices} is left out where a host declares none.",
    )
    devices_idle: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="Devices that each replica leaves unused on its hosts, declared; default 0.",
    )


class Roles(Section):
    """Either one unified role, or prefill and decode."""

    unified: Role | None = Field(default=None, description="One role that does prefill and decode.")
    prefill: Role | None = Field(
        default=None, description="Reads prompts and hands their KV cache over."
    )
    decode: Role | None = Field(default=None, description="Takes KV caches over and generates.")

    @model_validator(mode="after")
    def _is_unified_or_disaggregated(self) -> Self:
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


class StackSpec(Section):
    """The whole stack file after `extends` and `--set`."""

    summary: StrictStr = Field(default="", description="One line, shown by `fab stacks`.")
    checkpoint: Named = Field(
        description="Weights: an id of infra/catalog/checkpoints/, or its name at the hub."
    )
    served_name: ServedName | None = Field(
        default=None,
        description="What clients ask for as `model`; default: the checkpoint's own, else its name at the hub.",
    )
    draft: Draft | None = Field(default=None, description="Draft model for speculative decoding.")
    accelerator: Named | None = Field(
        default=None,
        description="Chip of all hosts: an id of infra/catalog/accelerators/; a role may name its own.",
    )
    engine: Engine = Field(description="The engine and its pinned release.")
    platform: Platform = Field(description="Where it runs.")
    runtime: Runtime = Field(
        default="docker",
        description="How a process is wrapped on its host; native: from a virtual environment that you have made, of "
        "which the program and the package's version are looked at, and nothing more.",
    )
    placement: Placement = Field(
        default="dedicated",
        description="dedicated: each replica on hosts of its own, named <role>-<n>; shared: replicas and roles packed "
        "on the fewest hosts, named host-<n>.",
    )
    roles: Roles = Field(description="`unified`, or `prefill` and `decode`.")
    defaults: Role = Field(
        default=Role.model_construct(),
        description="The same fields for every role that does not say otherwise.",
    )
    leave_devices: Annotated[StrictInt, Field(ge=0)] = Field(
        default=0,
        description="How many devices of every host, counted from the first, another stack on these hosts has. "
        "Ports start as much later; `port` is yours to choose.",
    )
    kv_transfer: KvTransfer | None = Field(
        default=None, description="How KV caches move; required with prefill and decode."
    )
    router: Router | None = Field(
        default=None, description="Required when there is more than one endpoint."
    )
    edge: Edge | None = Field(
        default=None, description="The front that asks clients for keys; without it nobody does."
    )
    port: PortNumber = Field(
        default=8000,
        description="What clients use: the edge's port, else the router's, else the only endpoint's.",
    )
    firewall: Literal["plan", "none"] = Field(
        default="none",
        description="plan: every host lets in at its ports only who dials them by the plan; none: nothing is closed.",
    )
    clients: tuple[Network, ...] = Field(
        default=(),
        description="Networks that may dial what clients use; read with `firewall: plan`, which lets in none without.",
    )
    monitors: tuple[Network, ...] = Field(
        default=(),
        description="Networks that may dial metrics, which is every endpoint; read with `firewall: plan`.",
    )
    weights: Weights = Field(
        default=Weights.model_construct(),
        description="Where checkpoints lie on a host, and what holds them.",
    )
    tuning: Id | Tuning | None = Field(
        default=None,
        description="Host tuning profile: an id of infra/catalog/tuning/; default: the accelerator's.",
    )
    capacity: Capacity | None = Field(
        default=None,
        description="How machines are bought on a cloud; wanted there, no kind is a default.",
    )
    ingress: Literal["none", "internal-load-balancer"] | ExistingIngress = Field(
        default="none", description="How clients reach the router on a cloud."
    )
    kubernetes: Kubernetes = Field(
        default=Kubernetes.model_construct(), description="Only read on Kubernetes platforms."
    )
    secrets: Secrets = Field(
        default=Secrets.model_construct(),
        description="References to secrets; never values.",
    )
    waive: tuple[Waiver, ...] = Field(
        default=(), description="Findings accepted, with the reason; always printed."
    )

    @property
    def scheme(self) -> Literal["http", "https"]:
        """What clients speak."""
        has_tls = self.edge is not None and isinstance(self.edge.tls, EdgeTls)
        return "https" if has_tls else "http"

    @property
    def enabled_tuning(self) -> tuple[str, ...]:
        """Ids of the tuning items that are switched on beyond the profile."""
        return self.tuning.enable if isinstance(self.tuning, Tuning) else ()
