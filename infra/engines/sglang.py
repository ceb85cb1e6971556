"""SGLang's command line: data-parallel attention, several hosts, prefill/decode.

Semantics from sglang 0.5.9 and 0.5.23: srt/server_args.py and PortArgs; read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from infra.catalog.flags import FlagCatalogue
from infra.engines import group_settings
from infra.engines.command_line import as_int, parse_flags
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
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.recognition import is_wrapped, program_length
from infra.engines.settings import Flag, RoleSettings, Variable
from infra.engines.sizes import MAX_RANKS, read_devices, read_size
from infra.spec.stack import RoleName

# `[dist_port, dist_port + 6]`: tokenizer, detokenizer, rpc, metrics, scheduler input, load collector.
NUM_DIST_PORTS = 7
# Where attention ranks of one host meet that are told no place, counted from the HTTP port; only nodes collect loads on
# the last of these ports (PortArgs.init_new@0.5.9, 0.5.16, 0.5.23: ZMQ_TCP_PORT_DELTA).
UNTOLD_DIST = 233
LAST_PORT = 65_535
DEFAULT_HTTP_PORT = 30000
DEFAULT_BOOTSTRAP_PORT = 8998

OWNED_FLAGS: Mapping[str, str] = {
    "host": "engines listen on every address of their host",
    "port": "port",
    "model-path": "checkpoint",
    "tensor-parallel-size": "tensor_parallel",
    "pipeline-parallel-size": "pipeline_parallel",
    "data-parallel-size": "data_parallel",
    "expert-parallel-size": "expert_parallel",
    "nnodes": "tensor_parallel",
    "node-rank": "tensor_parallel",
    "dist-init-addr": "it follows from the inventory",
    "served-model-name": "served_name",
    "context-length": "max_model_len",
    "max-running-requests": "max_num_seqs",
    "chunked-prefill-size": "max_num_batched_tokens",
    "mem-fraction-static": "gpu_memory_utilization",
    "disaggregation-mode": "kv_transfer",
    "disaggregation-transfer-backend": "kv_transfer",
    "disaggregation-bootstrap-port": "infra/plan/ports.py allocates it",
    "disaggregation-ib-device": "it follows from the inventory's moe.rdma_devices",
    "speculative-draft-model-path": "draft",
    "revision": "weights.revision",
    "api-key": "secrets.api_key",
}

OWNED_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "devices follow from the topology",
    "HIP_VISIBLE_DEVICES": "devices follow from the topology",
    "HF_TOKEN": "secrets.hf_token",
}


class Sglang:
    """SGLang on CUDA and ROCm. With `enable-dp-attention` the ranks share the tensor-parallel devices."""

    owned_flags: Mapping[str, str] = OWNED_FLAGS
    owned_variables: Mapping[str, str] = OWNED_VARIABLES
    group_settings: GroupSettings = group_settings.SGLANG

    def unit_devices(self, settings: RoleSettings) -> int:
        """A whole server: with data-parallel attention the ranks divide the tensor-parallel group."""
        return settings.rank_devices

    def num_units(self, settings: RoleSettings) -> int:
        """One, unless plain data parallel repeats the model."""
        return 1 if has_dp_attention(settings) else settings.data_parallel

    def has_process_per_unit(self, settings: RoleSettings) -> bool:
        """Never: one launcher per host."""
        del settings
        return False

    def ranks_on_node(self, settings: RoleSettings, node: int, num_nodes: int) -> tuple[int, ...]:
        """The attention ranks whose first device is on this host."""
        per_rank = settings.rank_devices // settings.data_parallel or 1
        per_node = settings.rank_devices // num_nodes
        return tuple(r for r in range(settings.data_parallel) if (r * per_rank) // per_node == node)

    def port_requests(
        self, settings: RoleSettings, *, num_nodes: int, local_ranks: int, is_leader: bool
    ) -> tuple[PortRequest, ...]:
        """HTTP on every host (nodes behind the first serve a dummy health); dist block and bootstrap on the first."""
        del local_ranks, is_leader
        requests = [PortRequest(name="http", scope="process")]
        if num_nodes > 1 or has_dp_attention(settings):
            requests.append(PortRequest(name="dist", scope="leader", count=NUM_DIST_PORTS))
        if settings.role == "prefill" and settings.kv_transfer is not None:
            requests.append(PortRequest(name="bootstrap", scope="leader"))
        return tuple(requests)

    def program(self, settings: RoleSettings) -> tuple[str, ...]:
        """`python -m sglang.launch_server`; the model is a flag."""
        del settings
        return ("python", "-m", "sglang.launch_server")

    def common_part(self, settings: RoleSettings, peers: Mapping[RoleName, RoleSettings]) -> Part:
        """Model, sizes, limits, speculation, KV transfer, then catalogue, recipe and operator."""
        del peers
        return Part(
            flags=(
                *_size_flags(settings),
                *_limit_flags(settings),
                *_speculation(settings),
                *_kv_flags(settings),
                *settings.flags.values(),
            ),
            env=(
                *settings.env.values(),
                owned_variable(
                    "HF_HUB_OFFLINE", 1, "weights are staged; nothing is downloaded at start"
                ),
                *_nixl_backend(settings),
            ),
            env_prepend=tuple(settings.env_prepend.values()),
            mounts=settings.mounts,
        )

    def group_part(self, context: GroupContext) -> Part:
        """Nothing: a server is one process per host, and each is told all of it."""
        del context
        return Part()

    def own_part(self, context: ProcessContext) -> Part:
        """Port, node rank, bootstrap port, the host's HCAs, the device mask, the interface."""
        group = context.group
        flags: list[Flag] = [
            owned("host", "0.0.0.0", "every address of the host"),  # noqa: S104 - the published value
            owned("port", context.ports["http"], "allocated"),
        ]
        if group.num_nodes > 1:
            flags += [
                owned("nnodes", group.num_nodes, "hosts"),
                owned("node-rank", context.node, "order of hosts"),
            ]
        if "dist" in group.ports:
            address = f"{group.leader_address}:{group.ports['dist']}"
            flags.append(owned("dist-init-addr", address, "the first host"))
        if "bootstrap" in group.ports:
            # before 0.5.12 every node registers with the first host at its own port (common/conn.py@0.5.9)
            flags.append(
                owned("disaggregation-bootstrap-port", group.ports["bootstrap"], "allocated")
            )
        if group.settings.kv_transfer is not None and context.facts.rdma_devices:
            names = ",".join(name.partition(":")[0] for name in context.facts.rdma_devices)
            flags.append(owned("disaggregation-ib-device", names, "moe.rdma_devices of the host"))
        return Part(flags=tuple(flags), env=(*_device_mask(context), *interface_variables(context)))

    def read(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        *,
        num_devices: int,
        flags: FlagCatalogue,
    ) -> Reading:
        """What `sglang.launch_server` makes of a command line."""
        parsed = parse_flags(argv[program_length(argv) :], flags)
        room = 1 if argv[1:2] == ("serve",) else 0  # `sglang serve MODEL`
        values = parsed.values
        layout = _Layout.of(values)
        port: int | None = as_int(values.get("port"), DEFAULT_HTTP_PORT)
        if port == 0 and layout.node > 0:  # a dummy's, at any free port
            port = None
        return Reading(
            flags=values,
            unknown=() if is_wrapped(argv) else parsed.refused_with(room),
            dp_ranks=layout.ranks,
            devices=_devices(values, env, layout.local_devices, num_devices),
            http_port=port,
            binds=_binds(values, layout, port),
            dials=_dials(values, layout),
            group_size=layout.data,
            is_leader=layout.node == 0,
            takes_requests=layout.node <= 0,
            extra={"layout": layout},
        )


class _Layout(NamedTuple):
    """The parallel layout of a command line."""

    tensor: int
    pipeline: int
    data: int
    dp_attention: bool
    num_nodes: int
    node: int

    @staticmethod
    def of(flags: Mapping[str, object]) -> _Layout:
        """From parsed flags."""
        return _Layout(
            tensor=read_size(flags, "tensor-parallel-size"),
            pipeline=read_size(flags, "pipeline-parallel-size"),
            data=read_size(flags, "data-parallel-size"),
            dp_attention=bool(flags.get("enable-dp-attention")),
            num_nodes=read_size(flags, "nnodes"),
            node=as_int(flags.get("node-rank"), 0),
        )

    @property
    def has_attention_ranks(self) -> bool:
        """Whether ranks share the devices of attention; a single one is none."""
        return self.dp_attention and self.data > 1

    @property
    def world(self) -> int:
        """Devices of the whole server."""
        return self.tensor * self.pipeline * (1 if self.dp_attention else self.data)

    @property
    def local_devices(self) -> int:
        """Devices on this host."""
        return self.world // max(self.num_nodes, 1)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks whose first device is on this host."""
        per_rank = max(self.world // self.data, 1)
        per_node = max(self.local_devices, 1)
        return tuple(r for r in range(self.data) if (r * per_rank) // per_node == self.node)


def has_dp_attention(settings: RoleSettings) -> bool:
    """Whether the role's flags ask for data-parallel attention."""
    flag = settings.flags.get("enable-dp-attention")
    return flag is not None and flag.value is True


def _size_flags(settings: RoleSettings) -> tuple[Flag, ...]:
    role = settings.role
    flags = [
        owned("model-path", settings.weights.path, "checkpoint, at its revision"),
        owned(
            "served-model-name",
            settings.served_model_name,
            "the same on every rank and for clients",
        ),
        owned("tp-size", settings.tensor_parallel, f"roles.{role}.tensor_parallel"),
    ]
    if settings.pipeline_parallel > 1:
        flags.append(owned("pp-size", settings.pipeline_parallel, "pipeline_parallel"))
    if settings.data_parallel > 1:
        flags.append(owned("dp-size", settings.data_parallel, f"roles.{role}.data_parallel"))
    if settings.expert_parallel:
        flags.append(owned("ep-size", settings.rank_devices, f"roles.{role}.expert_parallel"))
    return tuple(flags)


def _limit_flags(settings: RoleSettings) -> tuple[Flag, ...]:
    limits = {
        "context-length": settings.max_model_len,
        "max-running-requests": settings.max_num_seqs,
        "chunked-prefill-size": settings.max_num_batched_tokens,
        "mem-fraction-static": settings.gpu_memory_utilization,
    }
    return limit_flags(settings, limits)


def _speculation(settings: RoleSettings) -> tuple[Flag, ...]:
    draft = settings.speculation
    if draft is None:
        return ()
    steps = draft.num_speculative_tokens
    return (
        owned(
            "speculative-algorithm",
            str(draft.weights.checkpoint.draft_method).upper(),
            "from draft",
        ),
        owned("speculative-draft-model-path", draft.weights.path, "from draft"),
        owned("speculative-num-steps", steps, "draft.num_speculative_tokens"),
        owned("speculative-eagle-topk", 1, "a chain, as the published commands"),
        owned("speculative-num-draft-tokens", steps + 1, "steps + 1 for a chain"),
    )


def _kv_flags(settings: RoleSettings) -> tuple[Flag, ...]:
    if settings.kv_transfer is None:
        return ()
    return (
        owned("disaggregation-mode", settings.role, "the role"),
        owned("disaggregation-transfer-backend", settings.kv_transfer, "kv_transfer"),
    )


def _nixl_backend(settings: RoleSettings) -> tuple[Variable, ...]:
    """What NIXL moves KV with where the network asks for more than UCX, SGLang's default; it takes one alone."""
    if settings.kv_transfer != "nixl" or settings.network is None:
        return ()
    backend = settings.network.nixl_backends[0]
    return (owned_variable("SGLANG_DISAGGREGATION_NIXL_BACKEND", backend, "of the network"),)


def _device_mask(context: ProcessContext) -> tuple[Variable, ...]:
    if len(context.devices) == context.host_devices:
        return ()
    name = context.group.settings.accelerator.mask_variable
    return (owned_variable(name, ",".join(map(str, context.devices)), "its devices of the host"),)


def _devices(
    flags: Mapping[str, object], env: Mapping[str, str], needed: int, num_devices: int
) -> tuple[int, ...]:
    """The first of those that it sees is `base-gpu-id` (srt/entrypoints/engine.py@0.5.9, 0.5.16)."""
    first = max(0, min(as_int(flags.get("base-gpu-id"), 0), MAX_RANKS))
    step = read_size(flags, "gpu-id-step")
    return read_devices(env, needed, num_devices, first=first, step=step)


def _binds(flags: Mapping[str, object], layout: _Layout, port: int | None) -> tuple[Bind, ...]:
    binds = [Bind(name="http", port=port)] if port is not None else []
    address = str(flags.get("dist-init-addr") or "")
    if address and layout.node == 0:
        binds.append(
            Bind(name="dist", port=as_int(address.rpartition(":")[2], 0), count=NUM_DIST_PORTS)
        )
    elif not address and port is not None and layout.num_nodes == 1 and layout.has_attention_ranks:
        base = port + UNTOLD_DIST if port + UNTOLD_DIST <= LAST_PORT else port - UNTOLD_DIST
        binds.append(Bind(name="dist", port=base, count=NUM_DIST_PORTS - 1))
    if not address and flags.get("nccl-port") is not None:  # where torch's processes meet
        binds.append(Bind(name="nccl", port=as_int(flags.get("nccl-port"), 0)))
    if flags.get("disaggregation-mode") == "prefill" and layout.node == 0:
        bootstrap = as_int(flags.get("disaggregation-bootstrap-port"), DEFAULT_BOOTSTRAP_PORT)
        binds.append(Bind(name="bootstrap", port=bootstrap))
    return tuple(sorted(binds, key=lambda bind: (bind.name, bind.port)))


def _dials(flags: Mapping[str, object], layout: _Layout) -> tuple[Dial, ...]:
    address = str(flags.get("dist-init-addr") or "")
    if not address or layout.node == 0:
        return ()
    host, _, port = address.rpartition(":")
    return (Dial(name="dist", address=host, port=as_int(port, 0)),)
