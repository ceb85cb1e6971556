"""Every rule by its id, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    ascend,
    capacity,
    compatibility,
    derived,
    experts,
    exposure,
    launch_modes,
    layout,
    network,
    pairing,
    settings,
    sglang,
    speculation,
    surroundings,
)
from infra.checks.view import Rule

_VLLM = "vllm 0.17.0, 0.22.1, 0.33.0: config/parallel.py, engine/arg_utils.py, v1/engine/utils.py"
_ASCEND = "vllm_ascend/platform.py@0.17.0rc1, 0.22.1rc1, 0.23.0"

RULES: Mapping[str, Rule] = {
    "unknown-flag": Rule(
        severity="error", source="infra/catalog/packages/", check=compatibility.flags_known
    ),
    "json-flag-value": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm config/*.py",
        releases="vllm, vllm-ascend",
        check=settings.json_values_known,
    ),
    "parser-name": Rule(
        severity="error",
        source="infra/catalog/packages/",
        releases="vllm, vllm-ascend",
        check=settings.parsers_registered,
    ),
    "quantization-method": Rule(
        severity="error",
        source="infra/catalog/packages/",
        releases="vllm, vllm-ascend",
        check=settings.quantization_registered,
    ),
    "model-path": Rule(
        severity="error",
        source="vllm transformers_utils/config.py@0.22.1; sglang srt/server_args.py@0.5.9",
        check=pairing.model_path_given,
    ),
    "server-arguments": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, 0.5.23",
        releases="sglang",
        check=sglang.arguments_agree,
    ),
    "chat-template": Rule(
        severity="error",
        source="sglang srt/parser/conversation.py, managers/template_manager.py@0.5.9, 0.5.23",
        releases="sglang",
        check=settings.chat_template_exists,
    ),
    "served-name-colon": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, 0.5.23",
        releases="sglang",
        check=settings.served_name_plain,
    ),
    "unread-variable": Rule(
        severity="warning", source="infra/catalog/packages/", check=surroundings.variables_read
    ),
    "port-variable": Rule(
        severity="error", source="vllm envs.py@0.22.1", check=surroundings.port_variables_numbers
    ),
    "internal-port": Rule(
        severity="error",
        source="vllm envs.py get_vllm_port@0.22.1; vllm#34199",
        releases="vllm, vllm-ascend",
        check=surroundings.internal_port_number,
    ),
    "library-architecture": Rule(
        severity="error",
        source="vLLM-Ascend guide Kimi-K2.5; vLLM recipe Kimi-K2.5",
        check=surroundings.libraries_for_architecture,
    ),
    "image-architecture": Rule(
        severity="error",
        source="infra/catalog/accelerators/, tags of vllm/vllm-openai",
        check=surroundings.image_for_architecture,
    ),
    "engine-vendor": Rule(
        severity="error",
        source="vllm and sglang platforms/",
        check=compatibility.engine_runs_on_vendor,
    ),
    "checkpoint-accelerator": Rule(
        severity="error",
        source="model cards; vLLM recipe Kimi-K2.5; SGLang cookbook",
        check=compatibility.checkpoint_runs_on_accelerator,
    ),
    "accelerator-not-rented": Rule(
        severity="error",
        source="AWS instance types, infra/catalog/accelerators/",
        check=compatibility.cloud_rents_accelerator,
    ),
    "missing-image": Rule(
        severity="error", source="infra/catalog/engines/", check=compatibility.image_exists
    ),
    "different-images": Rule(
        severity="error", source="infra/catalog/engines/", check=compatibility.one_image_for_all
    ),
    "router-engine": Rule(
        severity="error",
        source="vllm-router 0.1.17; sglang-router 0.3.2",
        check=compatibility.router_speaks_engine,
    ),
    "draft-checkpoint": Rule(
        severity="error",
        source="vllm config/speculative.py@0.17.0, 0.18.0",
        releases="all; Eagle3 for Kimi from vllm 0.18.0",
        check=compatibility.draft_fits_checkpoint,
    ),
    "draft-accelerator": Rule(
        severity="error",
        source="SGLang cookbook, KimiK25ConfigGenerator at commit fe41c7f",
        releases="sglang",
        check=compatibility.draft_runs_on_accelerator,
    ),
    "aiter-heads": Rule(
        severity="error",
        source="vllm rocm_aiter_mla.py@0.17.1, 0.18.0; SGLang cookbook",
        releases="vllm up to 0.17.1; sglang 0.5.9",
        check=compatibility.aiter_heads,
    ),
    "parallel-size": Rule(severity="error", source=_VLLM, check=layout.sizes_positive),
    "heads-divisible": Rule(severity="error", source=_VLLM, check=layout.heads_divisible),
    "context-parallel-size": Rule(
        severity="error", source=_VLLM, check=layout.context_parallel_divides
    ),
    "ranks-incomplete": Rule(severity="error", source=_VLLM, check=layout.ranks_complete),
    "group-flags-differ": Rule(
        severity="error", source=_VLLM, releases="vllm, vllm-ascend", check=layout.group_flags_equal
    ),
    "balancing-modes": Rule(
        severity="error", source=_VLLM, releases="vllm, vllm-ascend", check=launch_modes.one_mode
    ),
    "local-ranks": Rule(
        severity="error",
        source=_VLLM,
        releases="vllm, vllm-ascend",
        check=launch_modes.local_ranks_within_group,
    ),
    "node-place": Rule(
        severity="error", source=_VLLM, releases="vllm, vllm-ascend", check=launch_modes.node_place
    ),
    "api-servers": Rule(
        severity="error",
        source="vllm entrypoints/cli/serve.py@0.22.1",
        releases="vllm, vllm-ascend",
        check=launch_modes.api_servers_possible,
    ),
    "headless-mode": Rule(
        severity="error",
        source=_VLLM,
        releases="vllm, vllm-ascend",
        check=layout.headless_followers,
    ),
    "ranks-per-host": Rule(severity="error", source=_VLLM, check=layout.hybrid_local_size),
    "sglang-data-parallel": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, 0.5.23",
        releases="sglang",
        check=layout.sglang_data_parallel,
    ),
    "expert-transport": Rule(
        severity="error",
        source="vllm distributed/device_communicators/all2all.py@0.22.1",
        check=experts.all2all_backend_runs,
    ),
    "overlap-transport": Rule(
        severity="error",
        source="vllm config/vllm.py@0.17.0, 0.22.1",
        releases="vllm, vllm-ascend",
        check=experts.overlapped_batches_transport,
    ),
    "expert-balancing": Rule(
        severity="error",
        source=_VLLM,
        releases="vllm, vllm-ascend",
        check=experts.expert_balancing_possible,
    ),
    "device-shared": Rule(
        severity="error",
        source="vllm v1/worker/gpu_worker.py@0.22.1",
        check=layout.devices_disjoint,
    ),
    "port-twice": Rule(
        severity="error",
        source="vllm#20119 (rpc port equal to HTTP port)",
        check=network.ports_distinct,
    ),
    "port-range": Rule(severity="error", source="RFC 6335", check=network.ports_valid),
    "dangling-connect": Rule(severity="error", source=_VLLM, check=network.connects_answered),
    "leader-address": Rule(
        severity="error",
        source=_VLLM,
        releases="vllm, vllm-ascend",
        check=network.leader_address_own,
    ),
    "side-channel-host": Rule(
        severity="error",
        source="vllm nixl_connector.py@0.22.1",
        releases="vllm",
        check=network.side_channel_reachable,
    ),
    "host-variable": Rule(
        severity="error", source="vLLM-Ascend Kimi-K2.5 guide", check=network.host_variables_own
    ),
    "router-endpoints": Rule(
        severity="error", source="vllm-router 0.1.17 (run)", check=network.router_lists_endpoints
    ),
    "roles-disagree": Rule(
        severity="error", source="vllm nixl_connector.py@0.22.1", check=pairing.roles_agree
    ),
    "block-size-order": Rule(
        severity="error",
        source="vllm nixl_connector.py@0.17.0, 0.22.1",
        releases="vllm",
        check=pairing.prefill_blocks_smaller,
    ),
    "kv-role-deprecated": Rule(
        severity="warning",
        source="vllm distributed/kv_transfer/kv_connector/v1/nixl/connector.py@0.33.0",
        releases="vllm 0.33.0 and later",
        check=pairing.kv_role_current,
    ),
    "side-channel-base": Rule(
        severity="warning",
        source="vllm nixl_connector.py@0.17.0, nixl/*@0.33.0",
        releases="vllm",
        check=pairing.side_channel_base_shared,
    ),
    "kv-connector": Rule(
        severity="error",
        source="vllm kv_connector/factory.py@0.17.0, 0.22.1, 0.33.0",
        releases="vllm, vllm-ascend",
        check=pairing.connector_known,
    ),
    "kv-role": Rule(
        severity="error",
        source="vllm config/kv_transfer.py@0.22.1",
        releases="vllm, vllm-ascend",
        check=pairing.kv_role_matches,
    ),
    "instance-sizes": Rule(
        severity="error",
        source="vllm_ascend/utils.py check_kv_extra_config@0.22.1rc1",
        releases="vllm-ascend",
        check=pairing.instance_sizes_told,
    ),
    "ascend-prefill-width": Rule(
        severity="error",
        source="vllm_ascend mooncake_connector.py@0.22.1rc1",
        releases="vllm-ascend",
        check=pairing.ascend_prefill_wider,
    ),
    "hccn-mount": Rule(
        severity="error",
        source="vllm-ascend#7711",
        releases="vllm-ascend",
        check=pairing.hccn_mounted,
    ),
    "additional-config-key": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm_ascend/ascend_config.py",
        releases="vllm-ascend",
        check=ascend.additional_keys_known,
    ),
    "flash-comm-layout": Rule(
        severity="error",
        source=_ASCEND,
        releases="vllm-ascend; vision before 0.18.0",
        check=ascend.flash_comm_layout,
    ),
    "balance-scheduling": Rule(
        severity="error",
        source=_ASCEND,
        releases="vllm-ascend 0.22.0 and later",
        check=ascend.balance_scheduling_mixed,
    ),
    "recompute-scheduler": Rule(
        severity="error",
        source=_ASCEND,
        releases="vllm-ascend 0.22.0 and later; on prefill 0.23.0 and later",
        check=ascend.recompute_scheduler_role,
    ),
    "interleave-size": Rule(
        severity="error",
        source=_ASCEND,
        releases="vllm-ascend",
        check=ascend.interleave_equals_block,
    ),
    "role-setting": Rule(
        severity="error", source=_ASCEND, releases="vllm-ascend", check=ascend.decode_only_settings
    ),
    "launch-blocking": Rule(
        severity="error", source=_ASCEND, releases="vllm-ascend", check=ascend.graphs_not_blocked
    ),
    "kv-port-drawn": Rule(
        severity="error",
        source="Mooncake ascend_direct_transport.cpp, v0.3.8",
        releases="vllm-ascend",
        check=ascend.kv_ports_clear,
    ),
    "kv-port-low": Rule(
        severity="warning",
        source="Mooncake v0.3.7.post2; vllm-ascend pd_disaggregation_mooncake_multi_node.md",
        releases="vllm-ascend",
        check=ascend.kv_ports_recommended,
    ),
    "vision-nixl": Rule(
        severity="warning",
        source="vllm docs/features/nixl_connector_compatibility.md",
        releases="vllm",
        check=pairing.vision_over_nixl,
    ),
    "context-length": Rule(severity="error", source=_VLLM, check=capacity.context_within_model),
    "batched-tokens": Rule(
        severity="error",
        source="vllm config/scheduler.py@0.22.1",
        releases="vllm, vllm-ascend",
        check=capacity.batch_holds_sequences,
    ),
    "draft-incomplete": Rule(
        severity="error",
        source="vllm config/speculative.py@0.17.0, 0.22.1",
        releases="vllm, vllm-ascend",
        check=speculation.draft_complete,
    ),
    "capture-sizes": Rule(
        severity="warning",
        source="vllm config/compilation.py, config/vllm.py@0.22.1",
        releases="vllm, vllm-ascend",
        check=speculation.capture_sizes_cover,
    ),
    "memory-share": Rule(
        severity="error", source="vllm config/cache.py@0.22.1", check=capacity.memory_share_possible
    ),
    "weights-memory": Rule(
        severity="error", source="config.json and modelling code", check=capacity.weights_fit
    ),
    "kv-memory": Rule(
        severity="error", source="infra/memory/kv_cache.py", check=capacity.kv_cache_fits
    ),
    "kv-memory-tight": Rule(
        severity="warning",
        source="infra/memory/kv_cache.py",
        check=capacity.kv_cache_fits_exactly,
    ),
    "media-path": Rule(
        severity="warning",
        source="vllm multimodal/media/connector.py@0.22.1; vLLM-Ascend guide Kimi-K2.5",
        check=exposure.media_path_narrow,
    ),
    "remote-code": Rule(
        severity="warning",
        source="transformers dynamic_module_utils.py",
        check=exposure.remote_code_pinned,
    ),
    "router-key": Rule(
        severity="warning", source="vllm-router 0.1.17 (run)", check=exposure.router_has_engines_key
    ),
    "public-address": Rule(
        severity="warning",
        source="vllm docs/usage/security.md",
        check=exposure.public_router_guarded,
    ),
    "derived-field": Rule(
        severity="error", source="docs/architecture.md", check=derived.derived_fields_agree
    ),
}
