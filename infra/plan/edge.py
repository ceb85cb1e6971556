"""The edge of a plan: one process that clients dial, before the router or the only endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.engines.haproxy import ALLOW, START, START_IN_POD
from infra.engines.reading import Bind
from infra.engines.serving import CHAT, MODELS
from infra.engines.settings import Origin
from infra.inventory.hosts import AddressBook
from infra.plan.process import Connect, PlanEdge, Process
from infra.plan.resolve import Problems
from infra.plan.topology import Topology
from infra.spec.edge import EdgeTls
from infra.spec.load import LoadedStack
from infra.spec.stack import KUBERNETES, StackSpec

EDGE_ID = "edge/0"
RULE = "edge"
# Names of the plan's secrets.
KEYS, CERTIFICATE, PRIVATE_KEY = "edge_keys", "edge_certificate", "edge_private_key"
SECRETS = (KEYS, CERTIFICATE, PRIVATE_KEY)
# Where a stack names them.
FIELDS = {KEYS: "edge.keys", CERTIFICATE: "edge.tls.certificate", PRIVATE_KEY: "edge.tls.key"}
# What clients must never reach, by the first segment or the whole path: it stops, changes or shows what serves, or is
# inference by another door. Source: routes of vllm 0.22.1 and 0.33.0, sglang 0.5.9 and 0.5.23, vllm-router 0.1.17,
# sglang-router 0.3.2 and vllm-ascend's proxy, read in the packages; vllm entrypoints/serve/rlhf/api_router.py of main;
# checked 2026-11-26.
CONTROL_PATHS = frozenset(
    (
        "abort_request", "abort_requests", "add_worker", "clear_hicache_storage_backend", "close_session",
        "collective_rpc", "configure_logging", "continue_generation", "destroy_weights_update_group",
        "dump_expert_distribution_record", "fault_tolerance", "flush_cache", "freeze_gc", "get_internal_state",
        "get_loads", "get_server_info", "get_weight_version", "get_weights_by_name", "get_world_size", "healthcheck",
        "init_weight_transfer_engine", "init_weights_send_group_for_remote_instance", "init_weights_update_group",
        "instances", "invocations", "is_paused", "is_scaling_elastic_ep", "is_sleeping",
        "kv_event_sources", "list_workers", "load", "load_lora_adapter", "metrics", "open_session", "pause",
        "pause_generation", "release_memory_occupation", "remove_worker", "reset_encoder_cache", "reset_mm_cache",
        "reset_prefix_cache", "resume", "resume_memory_occupation", "scale_elastic_ep", "server_info",
        "set_internal_state", "set_trace_level", "slow_down", "sleep", "start_expert_distribution_record",
        "start_profile", "stop_expert_distribution_record", "stop_profile", "unload_lora_adapter",
        "update_weight_version",
        "update_weights", "update_weights_from_disk", "update_weights_from_distributed", "update_weights_from_ipc",
        "update_weights_from_tensor", "wake_up", "workers",
    )
)  # fmt: skip
# Prefixes, one below the other, under which both engines change adapters and caches (`/v1/`, `/inference/v1/`).
_PREFIX = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]*)?|inference|")


def refuse_edge(stack: LoadedStack, problems: Problems) -> None:
    """Add what is wrong with a stack's edge, before anything is placed."""
    spec = stack.spec
    if spec.edge is None:
        return
    if spec.edge.keys is None and KEYS not in dict(spec.secrets.items()):
        fix = "Add `edge: {keys: {file: PATH}}`: a file with a line `NAME KEY` for each client."
        problems.add(RULE, "edge", "The edge asks clients for keys, and is told none.", fix)
    if spec.edge.allow is not None and not spec.edge.allow:
        fix = "Name the paths, or leave edge.allow out."
        problems.add(RULE, "edge.allow", "The edge would let nothing through.", fix)
    missing = [path for path in (MODELS, CHAT) if spec.edge.allow and path not in spec.edge.allow]
    if missing:
        what = f"{' and '.join(missing)} would be closed: `fab up` and `fab verify` prove the deployment through them."
        problems.add(RULE, "edge.allow", what, f"Add {', '.join(missing)}.")
    if spec.edge.host == "own" and spec.platform not in {*KUBERNETES, "existing-hosts"}:
        what = f"{spec.platform} makes no host for the edge alone."
        problems.add(RULE, "edge.host", what, "Write `host: router`, or use existing-hosts.")


def is_control(path: str) -> bool:
    """Whether a path stops, changes or shows what serves."""
    segments = path.lower().strip("/").split("/")
    named = next((each for each in segments if not _PREFIX.fullmatch(each)), "")
    return named in CONTROL_PATHS


def edge_secrets(spec: StackSpec) -> Mapping[str, Mapping[str, str]]:
    """References to what the edge must hold, by name; {} without an edge."""
    if spec.edge is None:
        return {}
    keys = spec.edge.keys or dict(spec.secrets.items()).get(KEYS)
    found = {} if keys is None else {KEYS: keys}  # what lacks them is told by `refuse_edge`
    if isinstance(spec.edge.tls, EdgeTls):
        found |= {CERTIFICATE: spec.edge.tls.certificate, PRIVATE_KEY: spec.edge.tls.key}
    return {name: reference.model_dump() for name, reference in found.items()}


def has_host_beside(spec: StackSpec, topology: Topology) -> bool:
    """Whether the edge's host is none of the topology's."""
    return spec.edge is not None and topology.edge_host not in {h.name for h in topology.hosts}


def plan_edge(spec: StackSpec) -> PlanEdge | None:
    """What the edge lets through."""
    if spec.edge is None:
        return None
    return PlanEdge(
        name=spec.edge.name,
        tls="given" if isinstance(spec.edge.tls, EdgeTls) else spec.edge.tls or "unsaid",
        allow=spec.edge.allow or ALLOW,
        connections_per_address=spec.edge.connections_per_address,
        connections_per_key=spec.edge.connections_per_key,
    )


def compile_edge(
    spec: StackSpec, topology: Topology, book: AddressBook, serving: Process
) -> Process:
    """The edge's process.

    Args:
        spec: a stack with an edge.
        topology: where it runs.
        book: addresses.
        serving: the router, or the only endpoint.
    """
    host = topology.edge_host
    port = next(bind.port for bind in serving.binds if bind.name == "http")
    argv = START_IN_POD if topology.is_of_pods else START
    origin = Origin(kind="compiler", name="plan", detail="edge")
    return Process(
        id=EDGE_ID,
        kind="edge",
        group=EDGE_ID,
        host=host,
        role="edge",
        replica=0,
        dp_ranks=(),
        devices=(),
        endpoint=f"{spec.scheme}://{book.address(host, seen_from=host)}:{spec.port}",
        binds=(Bind(name="http", port=spec.port),),
        connects=(Connect(name="http", to=serving.id, port=port),),
        env={},
        env_prepend={},
        mounts=(),
        argv=argv,
        flag_origins={word: origin for word in argv if word.startswith("--")},
        env_origins={},
    )
