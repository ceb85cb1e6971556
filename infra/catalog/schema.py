"""The shape of the catalogue's files: accelerators, checkpoints, releases, recipes, tuning profiles."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr

from infra.catalog.access import EngineAccess
from infra.catalog.sourced import Entry, SourcedEntry
from infra.spec.stack import Cloud

Vendor = Literal["nvidia", "amd", "ascend", "cpu"]
Family = Literal["vllm", "sglang"]
Architecture = Literal["x86_64", "aarch64"]
Generation = Literal["hopper", "blackwell", "cdna3", "cdna4", "ascend-a2", "ascend-a3", "cpu"]
Quantization = Literal["int4", "nvfp4", "w4a8", "bf16"]
EnvironmentValue = StrictStr
FlagData = StrictBool | StrictInt | float | StrictStr | list[object] | dict[str, object]


class FabricDomain(Entry):
    """Devices that reach each other without the host network.

    Args:
        kind: the interconnect.
        num_devices: devices of one domain; equal to a host's devices when it ends at the host.
    """

    kind: Literal["nvlink", "xgmi", "hccs", "none"]
    num_devices: StrictInt


class Mount(Entry):
    """A bind mount from the host into a container."""

    source: StrictStr
    target: StrictStr
    read_only: StrictBool = True


class ContainerAccess(Entry):
    """What a container needs to use the devices.

    Args:
        per_device: `{index}` stands for each device of the host, masked or not: the mask variable
            counts among the devices that the container sees.
        fabric_devices: only where the stack's processes run on more than one host.
    """

    gpus: StrictStr | None = None
    devices: tuple[StrictStr, ...] = ()
    fabric_devices: tuple[StrictStr, ...] = ()
    per_device: tuple[StrictStr, ...] = ()
    groups: tuple[StrictStr, ...] = ()
    capabilities: tuple[StrictStr, ...] = ()
    security_options: tuple[StrictStr, ...] = ()
    mounts: tuple[Mount, ...] = ()
    shm_size: StrictStr | None = None
    ipc_host: StrictBool = True


class PodAccess(Entry):
    """How a pod gets the devices of its node.

    Args:
        resource: what the vendor's device plugin calls one device.
        domain_label: label of a node that names the domain in which devices of several hosts share memory; then
            pods need a claim on it (NVIDIA's ComputeDomain). None where domains end at the host.
    """

    resource: StrictStr
    domain_label: StrictStr | None = None


class Accelerator(SourcedEntry):
    """`accelerators/<id>.yaml`: a chip model and the host that carries it.

    `memory_mib` is per device as the engine sees it: what it multiplies by its memory utilisation, a
    little below what the vendor's tool prints. `mask_variable` limits a process to devices;
    `instances` is what each cloud that rents it calls a host. `all_reduce_gb_s` is the bandwidth of the bus that an
    all-reduce of some gigabytes over all devices of one host reaches at least; None where nobody has published one.
    `compute_capability` is what CUDA calls the chip (`9.0`); None for another vendor's.
    `devices_per_card` is how many devices share a card, where the vendor's tool numbers cards and chips on them.
    """

    id: StrictStr = ""
    vendor: Vendor
    generation: Generation
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    product_name: StrictStr
    memory_mib: StrictInt
    devices_per_host: StrictInt
    devices_per_card: StrictInt = 1
    architecture: Architecture
    fabric: FabricDomain
    mask_variable: StrictStr
    container: ContainerAccess
    pod: PodAccess | None = None
    tuning: StrictStr
    instances: dict[Cloud, StrictStr] = Field(default_factory=dict)
    all_reduce_gb_s: StrictInt | None = None
    env: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)

    @property
    def fabric_spans_hosts(self) -> bool:
        """Whether devices of several hosts reach each other without the host network: a rack, a super-pod."""
        return self.fabric.num_devices > self.devices_per_host


class Vision(Entry):
    """The vision tower: parameter bytes as stored."""

    size_bytes: StrictInt


class ModelShape(Entry):
    """Sizes of a multi-head-latent-attention mixture-of-experts model, as in its config.json."""

    name: StrictStr
    model_type: StrictStr
    num_layers: StrictInt
    num_dense_layers: StrictInt
    hidden_size: StrictInt
    num_attention_heads: StrictInt
    q_lora_rank: StrictInt
    kv_lora_rank: StrictInt
    qk_rope_head_dim: StrictInt
    qk_nope_head_dim: StrictInt
    v_head_dim: StrictInt
    num_experts: StrictInt
    num_experts_per_token: StrictInt
    num_shared_experts: StrictInt
    moe_intermediate_size: StrictInt
    intermediate_size: StrictInt
    vocab_size: StrictInt
    max_context: StrictInt
    vision: Vision | None = None


class FeatureFlags(Entry):
    """What a feature adds to the command line, per engine family (`vllm`, `sglang`)."""

    default: StrictBool = True
    vllm: dict[StrictStr, FlagData] = Field(default_factory=dict)
    sglang: dict[StrictStr, FlagData] = Field(default_factory=dict)


class Checkpoint(SourcedEntry):
    """`checkpoints/<id>.yaml`: one set of weights with its quantisation, or a draft model.

    Args:
        repository: `organisation/name`, as both hubs have it.
        hub: where it is published; `none` for one that a stack's `weights.source` must name.
        revision: commit of the hub's repository; argument vectors carry `<path>/<id>/<revision>`.
        size_bytes: all weight files on disk.
        expert_bytes: the part of `size_bytes` that lies in routed experts.
        linear_bytes: of a parameter of attention (but `kv_b`), dense layers and shared experts.
        generations: accelerator generations whose kernels read this quantisation.
        flags: engine flags that the weights themselves need.
        architecture: of its config.json, as engines register it.
        thinking_off: what its chat template takes (`chat_template_kwargs`) to answer without a thought; {} where it
            always thinks, or never.
        has_random_weights: they mean nothing, and no answer is known.
    """

    id: StrictStr = ""
    kind: Literal["model", "draft"]
    repository: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")]
    hub: Literal["huggingface", "modelscope", "none"]
    revision: StrictStr
    size_bytes: StrictInt
    expert_bytes: StrictInt = 0
    linear_bytes: StrictInt = 2
    num_files: StrictInt = 64
    quantization: Quantization
    generations: tuple[Generation, ...]
    shape: ModelShape | None = None
    architecture: StrictStr | None = None
    draft_method: Literal["eagle3"] | None = None
    draft_of: tuple[StrictStr, ...] = ()
    served_model_name: StrictStr | None = None
    flags: dict[Literal["vllm", "sglang"], dict[StrictStr, FlagData]] = Field(default_factory=dict)
    env: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)
    thinking_off: dict[StrictStr, StrictBool] = Field(default_factory=dict)
    has_random_weights: StrictBool = False
    features: dict[Literal["tools", "reasoning", "vision", "prefix-caching"], FeatureFlags] = Field(
        default_factory=dict
    )


class Image(Entry):
    """A container image for some accelerators.

    Args:
        entrypoint: the program that the image starts by itself, with what follows as its arguments; () where it
            becomes whatever follows: then its own entry point stays, for what it prepares (`set_env.sh`).
        shell: what `~/.bashrc` of the image puts before LD_LIBRARY_PATH and LD_PRELOAD. Only an interactive shell
            reads that file, so every other start has to be given the same.
        network: of `networks/`, whose libraries the image has; chosen where processes reach other hosts over it.
        verified: whether the tag was seen in a registry or a vendor's page.
        digest: what the registry calls what the tag means (of all architectures together); None where it is not known.
    """

    reference: StrictStr
    accelerators: tuple[StrictStr, ...]
    entrypoint: tuple[StrictStr, ...] = ()
    network: Literal["efa"] | None = None
    verified: StrictBool
    digest: StrictStr | None = None
    shell: dict[Literal["LD_LIBRARY_PATH", "LD_PRELOAD"], EnvironmentValue] = Field(
        default_factory=dict
    )


class PlainImage(SourcedEntry):
    """`images/<id>.yaml`: an image that no engine runs in. `digest` is of all architectures together."""

    id: StrictStr = ""
    reference: StrictStr
    digest: StrictStr
    verified: StrictBool


class Release(SourcedEntry):
    """`engines/<engine>/<version>.yaml`: one engine release.

    Args:
        vendors: whose accelerators it runs on.
        flags_catalogue: stem of the file in `packages/` whose parser reads the command.
        envs_catalogues: stems of files in `packages/`; the union of their variables is what the release reads.
        base_version: for vllm-ascend, the vllm release it sits on.
        gpu_memory_utilization: the engine's own default.
        kv_block_tokens: tokens of a KV block of multi-head latent attention, by accelerator generation.
        env: variables that every process of this release gets.
        chat_templates: built-in names that its flag takes beside a path; () where it takes paths alone.
        access: whom its server lets in; None for vllm-ascend, whose server is that of its vllm.
        compile_caches: by vendor, the variables that say where what it compiles is kept, and a folder for each.
    """

    id: StrictStr = ""
    engine: Literal["vllm", "vllm-ascend", "sglang"]
    version: StrictStr
    base_version: StrictStr | None = None
    vendors: tuple[Vendor, ...]
    flags_catalogue: StrictStr
    envs_catalogues: tuple[StrictStr, ...]
    gpu_memory_utilization: float
    kv_block_tokens: dict[Generation, StrictInt]
    images: tuple[Image, ...]
    env: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)
    chat_templates: tuple[StrictStr, ...] = ()
    access: EngineAccess | None = None
    compile_caches: dict[Vendor, dict[StrictStr, StrictStr]] = Field(default_factory=dict)

    @property
    def family(self) -> Family:
        """Whose flags the engine speaks."""
        return "sglang" if self.engine == "sglang" else "vllm"


NeedsKind = Literal["live", "engine-restart", "drain", "reboot"]
TuningKind = Literal[
    "choice",
    "clock",
    "gpu-persistence",
    "gpu-setting",
    "imex-nodes",
    "kernel-arguments",
    "kernel-module",
    "login-limits",
    "migration-cost",
    "module-options",
    "mtu",
    "nfs-read-ahead",
    "numa-policy",
    "package-hold",
    "pcie-acs",
    "preload",
    "reserved-ports",
    "service",
    "sysctl",
    "sysfs",
    "unit-limits",
]


class TuningItem(Entry):
    """One item of a tuning profile.

    Args:
        id: the kernel's own name (`vm.swappiness`).
        kind: which mechanism of the agent reads and writes it.
        want: the wanted value; None reads only and leaves it alone (then `why` says why).
        target: sysctl key, sysfs glob, unit name or path, as the kind needs; default is the id.
            Of `login-limits`, the file; `want` is then its text.
        at_least: a host that has more is left as it is.
        needs: when a change takes effect.
        tolerate_absent: a host without it is `not_applicable`, not `failed`.
        enabled: whether the profile applies it unless the stack's `tuning.enable` names it.
        opt_in: what stands in the place of `want` when the stack's `tuning.enable` names the item.
        left_on_nodes: why a node of a Kubernetes cluster is left alone; None where it is tuned as any host.
    """

    id: StrictStr
    kind: TuningKind
    want: StrictStr | None
    target: StrictStr | None = None
    needs: NeedsKind = "live"
    tolerate_absent: StrictBool = False
    at_least: StrictBool = False
    enabled: StrictBool = True
    opt_in: StrictStr | None = None
    left_on_nodes: StrictStr | None = None
    why: StrictStr
    source: StrictStr
    checked: date


class ProfileFits(Entry):
    """Which hosts a profile is for.

    Args:
        processors: `implementer:part` of Arm processors; () for any.
        is_virtual: None for both.
    """

    architecture: Literal["x86_64", "aarch64"]
    vendor: Vendor
    processors: tuple[StrictStr, ...] = ()
    is_virtual: StrictBool | None = None


class TuningProfile(Entry):
    """`tuning/<id>.yaml`: what hosts of one kind are brought to.

    Args:
        fits: None for a profile that follows from nothing and must be named.
    """

    id: StrictStr = ""
    summary: StrictStr
    fits: ProfileFits | None = None
    extends: StrictStr | None = None
    items: tuple[TuningItem, ...]


class Applies(Entry):
    """When a recipe applies; a key that is left out matches anything.

    The recipe with the most keys that all match is taken; a tie is an error of the catalogue.
    """

    engine: Literal["vllm", "vllm-ascend", "sglang"]
    versions: tuple[StrictStr, ...] = ()
    accelerators: tuple[StrictStr, ...] = ()
    checkpoints: tuple[StrictStr, ...] = ()
    roles: tuple[Literal["prefill", "decode", "unified"], ...] = ()
    tensor_parallel: tuple[StrictInt, ...] = ()
    data_parallel_over_hosts: StrictBool | None = None
    draft: StrictBool | None = None


class Decision(Entry):
    """A contradiction between published sources, and what this recipe does about it."""

    about: StrictStr
    choice: StrictStr
    why: StrictStr
    source: StrictStr


class Recipe(Entry):
    """`recipes/<id>.yaml`: settings known to work for one combination, with their source."""

    id: StrictStr = ""
    summary: StrictStr
    applies: Applies
    flags: dict[StrictStr, FlagData] = Field(default_factory=dict)
    env: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)
    env_prepend: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    source: StrictStr
    checked: date
    decisions: tuple[Decision, ...] = ()
    arithmetic: Annotated[StrictStr, Field(default="")] = ""
