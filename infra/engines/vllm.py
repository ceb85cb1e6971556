"""vLLM's command line: every data-parallel mode, multi-node tensor parallel, NIXL and Mooncake.

Semantics from vllm 0.17.0 to 0.33.0: arg_utils.py `create_engine_config`, entrypoints/cli/serve.py,
v1/engine/utils.py; read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.flags import FlagCatalogue
from infra.catalog.schema import Mount
from infra.engines import group_settings, vllm_reading
from infra.engines.contract import (
    GroupContext,
    Part,
    PortRequest,
    ProcessContext,
    interface_variables,
    limit_flags,
    owned,
    owned_variable,
)
from infra.engines.group_settings import GroupSettings
from infra.engines.reading import Reading
from infra.engines.settings import Flag, RoleSettings, Variable
from infra.spec.stack import RoleName

KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}

OWNED_FLAGS: Mapping[str, str] = {
    "host": "engines listen on every address of their host",
    "port": "port",
    "model": "checkpoint",
    "tensor-parallel-size": "tensor_parallel",
    "pipeline-parallel-size": "pipeline_parallel",
    "data-parallel-size": "data_parallel",
    "data-parallel-size-local": "data_parallel",
    "data-parallel-rank": "load_balancing",
    "data-parallel-start-rank": "load_balancing",
    "data-parallel-address": "it follows from the inventory",
    "data-parallel-rpc-port": "infra/plan/ports.py allocates it",
    "data-parallel-hybrid-lb": "load_balancing",
    "data-parallel-external-lb": "load_balancing",
    "data-parallel-multi-port-external-lb": "load_balancing",
    "data-parallel-supervisor-port": "infra/plan/ports.py allocates it",
    "decode-context-parallel-size": "decode_context_parallel",
    "enable-expert-parallel": "expert_parallel",
    "headless": "load_balancing",
    "nnodes": "tensor_parallel",
    "node-rank": "tensor_parallel",
    "master-addr": "it follows from the inventory",
    "master-port": "infra/plan/ports.py allocates it",
    "kv-transfer-config": "kv_transfer",
    "speculative-config": "draft",
    "served-model-name": "served_name",
    "revision": "weights.revision",
    "max-model-len": "max_model_len",
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "api-key": "secrets.api_key",
    "device-ids": "devices follow from the topology",
}

OWNED_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "devices follow from the topology",
    "HIP_VISIBLE_DEVICES": "devices follow from the topology",
    "ASCEND_RT_VISIBLE_DEVICES": "devices follow from the topology",
    "VLLM_HOST_IP": "it follows from the inventory",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "kv_transfer",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "kv_transfer",
    "VLLM_MOONCAKE_BOOTSTRAP_PORT": "kv_transfer",
    "VLLM_PORT": "vLLM would take every internal port from it",
    "VLLM_API_KEY": "secrets.api_key",
    "HF_TOKEN": "secrets.hf_token",
}


class Vllm:
    """vLLM on CUDA and ROCm; `vllm_ascend` builds on it."""

    owned_flags: Mapping[str, str] = OWNED_FLAGS
    owned_variables: Mapping[str, str] = OWNED_VARIABLES
    group_settings: GroupSettings = group_settings.VLLM

    def unit_devices(self, settings: RoleSettings) -> int:
        """One data-parallel rank."""
        return settings.rank_devices

    def num_units(self, settings: RoleSettings) -> int:
        """One unit per data-parallel rank."""
        return settings.data_parallel

    def has_process_per_unit(self, settings: RoleSettings) -> bool:
        """Only external load balancing starts one process per rank."""
        return settings.data_parallel > 1 and settings.load_balancing == "external"

    def ranks_on_node(self, settings: RoleSettings, node: int, num_nodes: int) -> tuple[int, ...]:
        """A rank that spans hosts has its core on the first of them."""
        del settings, num_nodes
        return (0,) if node == 0 else ()

    def port_requests(
        self, settings: RoleSettings, *, num_nodes: int, local_ranks: int, is_leader: bool
    ) -> tuple[PortRequest, ...]:
        """HTTP unless headless; the handshake's port where it is bound on TCP; KV transfer's."""
        requests: list[PortRequest] = []
        multi_port = settings.load_balancing == "multi-port" and settings.data_parallel > 1
        if is_leader or not _is_headless(settings, is_leader=is_leader):
            requests.append(
                PortRequest(name="http", scope="process", count=local_ranks if multi_port else 1)
            )
        if multi_port:
            requests.append(PortRequest(name="supervisor", scope="process"))
        if _binds_rpc(settings, num_nodes):
            requests.append(PortRequest(name="dp_rpc", scope="leader"))
        if num_nodes > 1 and settings.data_parallel == 1:
            requests.append(PortRequest(name="master", scope="leader"))
        return (*requests, *self.kv_port_requests(settings))

    def kv_port_requests(self, settings: RoleSettings) -> tuple[PortRequest, ...]:
        """NIXL: one port per rank of the group. Mooncake: one bootstrap per process."""
        if settings.kv_transfer == "nixl":
            return (PortRequest(name="side_channel", scope="group", count=settings.data_parallel),)
        if settings.kv_transfer == "mooncake" and settings.role == "prefill":
            return (PortRequest(name="bootstrap", scope="process"),)
        return ()

    def program(self, settings: RoleSettings) -> tuple[str, ...]:
        """`vllm serve <checkpoint>`."""
        return ("vllm", "serve", settings.weights.path)

    def common_part(self, settings: RoleSettings, peers: Mapping[RoleName, RoleSettings]) -> Part:
        """Sizes, limits, speculation, KV transfer, then what catalogue, recipe and operator say."""
        del peers
        env = (
            *settings.env.values(),
            owned_variable(
                "HF_HUB_OFFLINE", 1, "weights are staged; nothing is downloaded at start"
            ),
        )
        return Part(
            flags=(
                *_size_flags(settings),
                *_limit_flags(settings),
                *_speculation(settings),
                *self.common_kv_flags(settings),
                *settings.flags.values(),
            ),
            env=env,
            env_prepend=tuple(settings.env_prepend.values()),
            mounts=(*settings.mounts, *self.kv_mounts(settings)),
        )

    def common_kv_flags(self, settings: RoleSettings) -> tuple[Flag, ...]:
        """`--kv-transfer-config`, equal on every process of a role; engine_id stays unset on purpose."""
        if settings.kv_transfer is None:
            return ()
        connector = {"nixl": "NixlConnector", "mooncake": "MooncakeConnector"}[settings.kv_transfer]
        config = {
            "kv_connector": connector,
            "kv_role": KV_ROLES[settings.role],
            "kv_load_failure_policy": "fail",
            **_buffer_device(settings),
            **_nixl_backends(settings),
        }
        return (
            owned("kv-transfer-config", config, "from kv_transfer; vLLM makes engine ids itself"),
        )

    def kv_mounts(self, settings: RoleSettings) -> tuple[Mount, ...]:
        """Nothing: NIXL and upstream Mooncake read no file of the host."""
        del settings
        return ()

    def group_part(self, context: GroupContext) -> Part:
        """Where rank 0 waits for the handshake; what the KV transfer of the group is told."""
        return Part(
            flags=(*_handshake_flags(context), *self.group_kv_flags(context)),
            env=self.group_kv_variables(context),
        )

    def group_kv_flags(self, context: GroupContext) -> tuple[Flag, ...]:
        """Nothing: NIXL and upstream Mooncake take ports from the environment."""
        del context
        return ()

    def group_kv_variables(self, context: GroupContext) -> tuple[Variable, ...]:
        """The side channel's base."""
        if "side_channel" not in context.ports:
            return ()
        why = "one base per group: vLLM adds the data-parallel rank"
        return (owned_variable("VLLM_NIXL_SIDE_CHANNEL_PORT", context.ports["side_channel"], why),)

    def own_part(self, context: ProcessContext) -> Part:
        """Port and rank, by mode; the device mask; address and interface; the address peers dial for KV."""
        return Part(
            flags=(*_http_flags(context), *_parallel_flags(context)),
            env=(
                *_device_mask(context),
                *_address_variables(context),
                *interface_variables(context),
                *self.own_kv_variables(context),
            ),
        )

    def own_kv_variables(self, context: ProcessContext) -> tuple[Variable, ...]:
        """The side channel's address, or the bootstrap's port."""
        if "side_channel" in context.group.ports:
            return (
                owned_variable(
                    "VLLM_NIXL_SIDE_CHANNEL_HOST", context.facts.address, "bound and advertised"
                ),
            )
        if "bootstrap" in context.ports:
            return (
                owned_variable(
                    "VLLM_MOONCAKE_BOOTSTRAP_PORT", context.ports["bootstrap"], "per process"
                ),
            )
        return ()

    def read(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        *,
        num_devices: int,
        flags: FlagCatalogue,
    ) -> Reading:
        """What `vllm serve` makes of a command line."""
        return vllm_reading.read(argv, env, num_devices=num_devices, catalogue=flags)


def _buffer_device(settings: RoleSettings) -> dict[str, str]:
    """Where NIXL finds the KV cache, unless it is where vLLM thinks of itself: on a device of CUDA."""
    if settings.kv_transfer == "nixl" and settings.accelerator.vendor == "cpu":
        return {"kv_buffer_device": "cpu"}
    return {}


def _nixl_backends(settings: RoleSettings) -> dict[str, object]:
    """What NIXL moves KV with where the network asks for more than UCX, its own choice."""
    if settings.kv_transfer != "nixl" or settings.network is None:
        return {}
    return {"kv_connector_extra_config": {"backends": list(settings.network.nixl_backends)}}


def _binds_rpc(settings: RoleSettings, num_nodes: int) -> bool:
    """External and hybrid modes always bind it; internal only over several hosts, else IPC."""
    if settings.data_parallel == 1:
        return False
    return num_nodes > 1 or settings.load_balancing != "internal"


def _is_headless(settings: RoleSettings, *, is_leader: bool) -> bool:
    """Followers of internal load balancing and of multi-node tensor parallel serve no HTTP."""
    follows = settings.data_parallel == 1 or settings.load_balancing == "internal"
    return follows and not is_leader


def _size_flags(settings: RoleSettings) -> tuple[Flag, ...]:
    role = settings.role
    flags = [
        owned(
            "served-model-name",
            settings.served_model_name,
            "the same on every rank and for clients",
        ),
        owned("tensor-parallel-size", settings.tensor_parallel, f"roles.{role}.tensor_parallel"),
    ]
    if settings.pipeline_parallel > 1:
        flags.append(
            owned("pipeline-parallel-size", settings.pipeline_parallel, "pipeline_parallel")
        )
    if settings.data_parallel > 1:
        flags.append(
            owned("data-parallel-size", settings.data_parallel, f"roles.{role}.data_parallel")
        )
    if settings.decode_context_parallel > 1:
        value = settings.decode_context_parallel
        flags.append(owned("decode-context-parallel-size", value, "decode_context_parallel"))
    if settings.expert_parallel:
        flags.append(owned("enable-expert-parallel", True, f"roles.{role}.expert_parallel"))  # noqa: FBT003
    return tuple(flags)


def _limit_flags(settings: RoleSettings) -> tuple[Flag, ...]:
    limits = {
        "max-model-len": settings.max_model_len,
        "max-num-seqs": settings.max_num_seqs,
        "max-num-batched-tokens": settings.max_num_batched_tokens,
        "gpu-memory-utilization": settings.gpu_memory_utilization,
    }
    return limit_flags(settings, limits)


def _speculation(settings: RoleSettings) -> tuple[Flag, ...]:
    draft = settings.speculation
    if draft is None:
        return ()
    config = {
        "method": draft.weights.checkpoint.draft_method,
        "model": draft.weights.path,
        "num_speculative_tokens": draft.num_speculative_tokens,
    }
    return (owned("speculative-config", config, "from draft"),)


def _http_flags(context: ProcessContext) -> tuple[Flag, ...]:
    if "http" not in context.ports:
        return ()
    return (
        owned("host", "0.0.0.0", "every address of the host"),  # noqa: S104 - the published commands' value
        owned("port", context.ports["http"], "allocated"),
    )


def _parallel_flags(context: ProcessContext) -> tuple[Flag, ...]:
    group, settings = context.group, context.group.settings
    if settings.data_parallel == 1:
        return _multi_node_flags(context) if group.num_nodes > 1 else ()
    flags: list[Flag] = []
    local = len(context.ranks)
    mode = settings.load_balancing
    if mode == "external":
        flags.append(owned("data-parallel-rank", context.first_rank, "one process per rank"))
    elif mode in {"hybrid", "multi-port"}:
        switch = (
            "data-parallel-hybrid-lb"
            if mode == "hybrid"
            else "data-parallel-multi-port-external-lb"
        )
        flags.append(owned(switch, True, f"load_balancing: {mode}"))  # noqa: FBT003
        flags.append(owned("data-parallel-size-local", local, "ranks on this host"))
        flags.append(
            owned("data-parallel-start-rank", context.first_rank, "first rank on this host")
        )
        if mode == "multi-port":
            flags.append(
                owned("data-parallel-supervisor-port", context.ports["supervisor"], "allocated")
            )
    elif group.num_nodes > 1:
        flags.append(owned("data-parallel-size-local", local, "ranks on this host"))
        if not context.is_leader:
            flags.append(owned("headless", True, "followers of internal load balancing"))  # noqa: FBT003
            flags.append(
                owned("data-parallel-start-rank", context.first_rank, "first rank on this host")
            )
    return tuple(flags)


def _handshake_flags(group: GroupContext) -> tuple[Flag, ...]:
    if "dp_rpc" not in group.ports:
        return ()
    return (
        owned("data-parallel-address", group.leader_address, "the host of rank 0"),
        owned("data-parallel-rpc-port", group.ports["dp_rpc"], "bound by rank 0"),
    )


def _multi_node_flags(context: ProcessContext) -> tuple[Flag, ...]:
    group = context.group
    flags = [
        owned("nnodes", group.num_nodes, "one rank spans hosts"),
        owned("node-rank", context.node, "order of the hosts"),
        owned("master-addr", group.leader_address, "the first host"),
        owned("master-port", group.ports["master"], "bound by node 0"),
    ]
    if not context.is_leader:
        flags.append(owned("headless", True, "only node 0 serves HTTP"))  # noqa: FBT003
    return tuple(flags)


def _device_mask(context: ProcessContext) -> tuple[Variable, ...]:
    """A mask for every process that does not use all devices of its host."""
    if len(context.devices) == context.host_devices:
        return ()
    name = context.group.settings.accelerator.mask_variable
    value = ",".join(str(device) for device in context.devices)
    return (owned_variable(name, value, "its devices of the host"),)


def _address_variables(context: ProcessContext) -> tuple[Variable, ...]:
    if context.group.num_nodes == 1 and context.group.settings.kv_transfer is None:
        return ()
    return (
        owned_variable(
            "VLLM_HOST_IP", context.facts.address, "no guessing among several interfaces"
        ),
    )
