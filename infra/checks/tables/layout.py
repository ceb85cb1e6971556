"""Rules about ranks, devices, ports and addresses of a deployment."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    address_forms,
    clouds,
    containers,
    endpoints,
    experts,
    fabric_domains,
    groups,
    host_networks,
    launch_modes,
    layout,
    network,
    router_lists,
    served_names,
    sglang,
)
from infra.checks.rule_releases import releases_of
from infra.checks.view import Rule

_VLLM = "vllm 0.17.0, 0.22.1, 0.33.0: config/parallel.py, engine/arg_utils.py, v1/engine/utils.py"

LAYOUT_RULES: Mapping[str, Rule] = {
    "parallel-size": Rule(severity="error", source=_VLLM, check=layout.sizes_positive),
    "heads-divisible": Rule(severity="error", source=_VLLM, check=layout.heads_divisible),
    "context-parallel-size": Rule(
        severity="error",
        source=f"{_VLLM}; config/parallel.py@0.25.1, 0.26.0, 0.27.1",
        parts={"with prefill contexts": layout.PREFILL_CONTEXTS},
        check=layout.context_parallel_divides,
    ),
    "ranks-incomplete": Rule(severity="error", source=_VLLM, check=layout.ranks_complete),
    "group-flags-differ": Rule(
        severity="error",
        source=f"{_VLLM}, v1/worker/gpu_model_runner.py; sglang managers/scheduler.py@0.5.9; vllm#44718, sglang#24378",
        parts={
            "overlapped batches": groups.OVERLAPS,
            "bootstrap ports of prefill": groups.BOOTSTRAPS_APART,
        },
        check=groups.flags_equal,
    ),
    "group-flags-uneven": Rule(
        severity="warning",
        source=f"{_VLLM}; vllm-ascend tests/e2e/nightly/multi_node@182b75e",
        check=groups.loose_flags_equal,
    ),
    "group-variables-differ": Rule(
        severity="error",
        source="NCCL user guide, environment variables; vllm envs.py@0.22.1; sglang srt/environ.py@0.5.23",
        check=groups.step_variables_equal,
    ),
    "group-variables-uneven": Rule(
        severity="warning",
        source="vllm envs.py@0.22.1; sglang srt/environ.py@0.5.23",
        check=groups.loose_variables_equal,
    ),
    "balancing-modes": Rule(
        severity="error",
        source=_VLLM,
        releases=releases_of("vllm", "vllm-ascend"),
        check=launch_modes.one_mode,
    ),
    "local-ranks": Rule(
        severity="error",
        source=_VLLM,
        releases=releases_of("vllm", "vllm-ascend"),
        check=launch_modes.local_ranks_within_group,
    ),
    "node-place": Rule(
        severity="error",
        source=_VLLM,
        releases=releases_of("vllm", "vllm-ascend"),
        parts={"nodes hold prefill contexts": launch_modes.NODES_HOLD_CONTEXTS},
        check=launch_modes.node_place,
    ),
    "nodes-meet": Rule(
        severity="error",
        source="sglang srt/model_executor/model_runner.py@0.5.9, srt/distributed/bootstrap.py@0.5.16, 0.5.23",
        releases=releases_of("sglang"),
        check=sglang.nodes_meet,
    ),
    "leader-start-rank": Rule(
        severity="error",
        source="vllm engine/arg_utils.py@0.22.1, 0.33.0; vllm-project/vllm-ascend#16204",
        releases=releases_of("vllm", "vllm-ascend", since="0.28.0"),
        check=launch_modes.leader_names_no_start,
    ),
    "ray-data-parallel": Rule(
        severity="error",
        source="vllm-project/vllm#44878, #45150",
        releases=releases_of("vllm", "vllm-ascend"),
        check=launch_modes.ray_spreads_ranks,
    ),
    "api-servers": Rule(
        severity="error",
        source="vllm entrypoints/cli/serve.py@0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=launch_modes.api_servers_possible,
    ),
    "headless-mode": Rule(
        severity="error",
        source=_VLLM,
        releases=releases_of("vllm", "vllm-ascend"),
        check=layout.headless_followers,
    ),
    "ranks-per-host": Rule(severity="error", source=_VLLM, check=layout.hybrid_local_size),
    "sglang-data-parallel": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, 0.5.23",
        releases=releases_of("sglang"),
        check=layout.sglang_data_parallel,
    ),
    "expert-transport": Rule(
        severity="error",
        source="vllm distributed/device_communicators/all2all.py@0.22.1; sglang expert_parallelism.md",
        check=experts.all2all_backend_runs,
    ),
    "dispatch-buffer": Rule(
        severity="error",
        source="sglang srt/layers/moe/token_dispatcher@0.5.9 to 0.5.23; NVIDIA/srt-slurm#44, DeepEP#165, sglang#29942",
        releases=releases_of("sglang"),
        parts={"drafts count": experts.VERIFIES_WIDE},
        check=experts.dispatch_buffers_hold,
    ),
    "overlap-transport": Rule(
        severity="error",
        source="vllm config/vllm.py@0.17.0, 0.22.1",
        releases=groups.OVERLAPS,
        check=experts.overlapped_batches_transport,
    ),
    "expert-balancing": Rule(
        severity="error",
        source=f"{_VLLM}, model_executor/layers/fused_moe/layer.py; vllm#30614",
        releases=releases_of("vllm", "vllm-ascend"),
        check=experts.expert_balancing_possible,
    ),
    "experts-even": Rule(
        severity="error",
        source="sglang srt/eplb/expert_location.py@0.5.9, 0.5.16, 0.5.23",
        releases=releases_of("sglang"),
        check=experts.sglang_experts_even,
    ),
    "device-shared": Rule(
        severity="error",
        source="vllm v1/worker/gpu_worker.py@0.22.1",
        check=layout.devices_disjoint,
    ),
    "mixed-group": Rule(
        severity="error",
        source="NVIDIA NCCL user guide; one collective library per group",
        check=fabric_domains.groups_of_one_kind,
    ),
    "fabric-domain": Rule(
        severity="error",
        source="vllm distributed/device_communicators/all2all.py@0.22.1",
        releases=releases_of("vllm"),
        check=fabric_domains.groups_within_domain,
    ),
    "pod-per-rank": Rule(
        severity="warning",
        source="llm-d, wide expert parallelism; DeepEP README (CUDA IPC within a node)",
        releases=releases_of("vllm"),
        check=fabric_domains.ranks_share_pod,
    ),
    "efa-userspace": Rule(
        severity="warning",
        source="vllm-project/vllm#55635, PR #55783; aws/deep-learning-containers docker/vllm/Dockerfile@c33b4af",
        check=host_networks.user_space_there,
    ),
    "efa-experts": Rule(
        severity="error",
        source="deepseek-ai/DeepEP#369, #759; vllm-project/vllm#27898; infra/catalog/networks/",
        check=host_networks.experts_reach_hosts,
    ),
    "efa-devices-mounted": Rule(
        severity="warning",
        source="aws-samples/aws-do-eks PR #63 (libfabric opens every device of the folder, fi_info -61 beside mlx5)",
        check=host_networks.plugin_alone_shows_devices,
    ),
    "eks-local-zone": Rule(
        severity="warning",
        source='AWS, EKS User Guide, "Launch low-latency EKS clusters with AWS Local Zones" (managed node groups, too)',
        check=clouds.nodes_in_ordinary_zone,
    ),
    "container-network": Rule(
        severity="error",
        source="docs.docker.com, Bridge network driver; NVIDIA/nccl#331",
        check=containers.networks_reach_peers,
    ),
    "group-releases": Rule(
        severity="warning",
        source="vllm v1/engine/utils.py, v1/executor/multiproc_executor.py@0.22.1 (pickled between nodes)",
        check=containers.one_release_per_group,
    ),
    "pod-names": Rule(
        severity="warning",
        source="kubernetes.io, DNS for Services and Pods, Pod's DNS policy; volcano-sh/volcano#778",
        check=containers.names_resolved,
    ),
    "pods-in-turn": Rule(
        severity="error",
        source="kubernetes-sigs/lws keps/135-startup-policy; vllm entrypoints/openai/api_server.py@0.22.1",
        check=containers.pods_started_together,
    ),
    "port-twice": Rule(
        severity="error",
        source="vllm#20119 (rpc port equal to HTTP port)",
        check=network.ports_distinct,
    ),
    "port-range": Rule(severity="error", source="RFC 6335", check=network.ports_valid),
    "service-port": Rule(
        severity="warning",
        source="NCCL RAS guide; dcgm-exporter README; CANN, HCCL_IF_BASE_PORT",
        check=network.service_ports_left,
    ),
    "address-form": Rule(
        severity="error",
        source="vllm utils/network_utils.py (get_tcp_uri)@0.22.1; vllm#18986",
        check=address_forms.addresses_well_formed,
    ),
    "dangling-connect": Rule(severity="error", source=_VLLM, check=network.connects_answered),
    "leader-address": Rule(
        severity="error",
        source=_VLLM,
        releases=releases_of("vllm", "vllm-ascend"),
        check=network.leader_address_own,
    ),
    "side-channel-host": Rule(
        severity="error",
        source="vllm nixl_connector.py@0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=network.side_channel_reachable,
    ),
    "host-variable": Rule(
        severity="error", source="vLLM-Ascend Kimi-K2.5 guide", check=network.host_variables_own
    ),
    "router-number": Rule(
        severity="error",
        source="vllm-router 0.1.17, sglang-router 0.3.2 (run; tests/cases/verdicts/)",
        check=router_lists.router_numbers_unsigned,
    ),
    "router-endpoints": Rule(
        severity="error",
        source="vllm-router 0.1.17 (run)",
        check=router_lists.router_lists_endpoints,
    ),
    "loopback-endpoint": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9 (host), vllm entrypoints/openai/api_server.py@0.22.1",
        check=endpoints.endpoint_reachable,
    ),
    "plain-endpoint": Rule(
        severity="error",
        source="vllm entrypoints/openai/api_server.py@0.17.0, 0.22.1; sglang srt/entrypoints/http_server.py@0.5.23",
        check=endpoints.endpoint_plain,
    ),
    "served-name-differs": Rule(
        severity="error",
        source="vllm entrypoints/openai/serving_engine.py@0.22.1; sglang srt/entrypoints/openai@0.5.9",
        check=served_names.served_names_shared,
    ),
}
