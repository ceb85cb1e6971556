"""Rules about prefill and decode, and about what vllm-ascend adds."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    ascend,
    connectors,
    pairing,
    roles,
)
from infra.checks.rule_releases import releases_of
from infra.checks.view import Rule

_ASCEND = "vllm_ascend/platform.py@0.17.0rc1, 0.18.0, 0.22.1rc1, 0.23.0"

TRANSFER_RULES: Mapping[str, Rule] = {
    "roles-disagree": Rule(
        severity="error",
        source="vllm nixl_connector.py@0.17.0, nixl/metadata.py@0.22.1; ai-dynamo/dynamo#10027, #12821",
        parts={"the hybrid KV cache manager": roles.HASHES_MANAGER},
        check=roles.roles_agree,
    ),
    "roles-uneven": Rule(
        severity="warning",
        source="vllm nixl/connector.py@0.22.1",
        check=roles.layouts_told_alike,
    ),
    "pair-incomplete": Rule(
        severity="error",
        source="vllm-router 0.1.17 (run)",
        check=pairing.pair_complete,
    ),
    "router-switch": Rule(
        severity="error",
        source="vllm-router 0.1.17, sglang-router 0.3.2 (run; tests/cases/verdicts/)",
        check=pairing.router_told_of_pairs,
    ),
    "draft-disagrees": Rule(
        severity="error",
        source="vllm distributed/kv_transfer/kv_connector/v1/nixl/*@0.33.0",
        releases=releases_of("vllm", "vllm-ascend", since="0.33.0"),
        check=pairing.drafts_agree,
    ),
    "block-size-order": Rule(
        severity="error",
        source="vllm nixl_connector.py@0.17.0, 0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=pairing.prefill_blocks_smaller,
    ),
    "kv-role-deprecated": Rule(
        severity="warning",
        source="vllm distributed/kv_transfer/kv_connector/v1/nixl/connector.py@0.33.0",
        releases=releases_of("vllm", "vllm-ascend", since="0.33.0"),
        check=pairing.kv_role_current,
    ),
    "side-channel-base": Rule(
        severity="warning",
        source="vllm nixl_connector.py@0.17.0, nixl/*@0.33.0",
        releases=releases_of("vllm", "vllm-ascend"),
        check=pairing.side_channel_base_shared,
    ),
    "kv-connector": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm kv_connector/factory.py, v1/multi_connector.py@0.17.0, 0.22.1, 0.33.0",
        releases=releases_of("vllm", "vllm-ascend"),
        check=connectors.connector_known,
    ),
    "transfer-stages": Rule(
        severity="error",
        source="vllm v1/worker/gpu_worker.py, v1/engine/core.py, kv_connector/v1/nixl/worker.py@0.22.1, 0.25.1, 0.26.0",
        releases=releases_of("vllm", before="0.26.0"),
        check=connectors.stages_transferred,
    ),
    "kv-role": Rule(
        severity="error",
        source="vllm config/kv_transfer.py@0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=pairing.kv_role_matches,
    ),
    "instance-sizes": Rule(
        severity="error",
        source="vllm_ascend/utils.py check_kv_extra_config@0.22.1rc1",
        releases=releases_of("vllm-ascend"),
        check=pairing.instance_sizes_told,
    ),
    "peer-sizes": Rule(
        severity="warning",
        source="vllm_ascend/utils.py check_kv_extra_config, mooncake_connector.py@0.26.0rc1",
        releases=releases_of("vllm-ascend"),
        check=pairing.peer_sizes_told,
    ),
    "ascend-prefill-width": Rule(
        severity="error",
        source="vllm_ascend mooncake_connector.py@0.22.1rc1",
        releases=releases_of("vllm-ascend"),
        check=pairing.ascend_prefill_wider,
    ),
    "decode-stages": Rule(
        severity="error",
        source="vllm_ascend mooncake_connector.py@0.22.1rc1; vllm-project/vllm-ascend#4054",
        releases=releases_of("vllm-ascend"),
        check=ascend.decode_has_no_stages,
    ),
    "prefill-contexts": Rule(
        severity="error",
        source="vllm_ascend/platform.py@0.18.0, 0.21.0rc1, 0.22.1rc1, 0.26.0rc1",
        releases=releases_of("vllm-ascend", since="0.22.0"),
        parts={"none at all": ascend.WITHOUT_CONTEXTS},
        check=ascend.prefill_contexts_possible,
    ),
    "hccn-mount": Rule(
        severity="error",
        source="vllm-ascend#7711",
        releases=releases_of("vllm-ascend"),
        check=pairing.hccn_mounted,
    ),
    "additional-config-key": Rule(
        severity="warning",
        source="infra/catalog/packages/; vllm_ascend/ascend_config.py, platform.py@0.23.0, 0.26.0rc1",
        releases=releases_of("vllm-ascend"),
        check=ascend.additional_keys_known,
    ),
    "flash-comm-layout": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend"),
        parts={"vision": ascend.WITHOUT_VISION},
        check=ascend.flash_comm_layout,
    ),
    "balance-scheduling": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend", since="0.18.0"),
        check=ascend.balance_scheduling_mixed,
    ),
    "balance-scheduling-early": Rule(
        severity="warning",
        source=_ASCEND,
        releases=releases_of("vllm-ascend", before="0.18.0"),
        check=ascend.balance_scheduling_unchecked,
    ),
    "recompute-scheduler": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend", since="0.18.0"),
        parts={"for decode alone": ascend.DECODE_ALONE},
        check=ascend.recompute_scheduler_role,
    ),
    "recompute-on-prefill": Rule(
        severity="warning",
        source="vllm-project/vllm-ascend#11265, #11537; vllm_ascend/platform.py@0.22.1rc1, 0.26.0rc1",
        releases=releases_of("vllm-ascend"),
        parts={"ignored": ascend.DECODE_ALONE},
        check=ascend.recompute_on_decode_alone,
    ),
    "interleave-size": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend"),
        check=ascend.interleave_equals_block,
    ),
    "role-setting": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend"),
        parts={"layer_sharding": ascend.SHARDED_LAYERS},
        check=ascend.decode_only_settings,
    ),
    "number-variable": Rule(
        severity="error",
        source="vllm_ascend/envs.py, ascend_config.py@0.18.0, 0.22.1rc1 (run), 0.23.0, 0.26.0rc1",
        releases=releases_of("vllm-ascend", since="0.18.0"),
        check=ascend.numbers_are_numbers,
    ),
    "launch-blocking": Rule(
        severity="error",
        source=_ASCEND,
        releases=releases_of("vllm-ascend"),
        check=ascend.graphs_not_blocked,
    ),
    "kv-port-drawn": Rule(
        severity="error",
        source="Mooncake ascend_direct_transport.cpp, v0.3.8",
        releases=releases_of("vllm-ascend"),
        check=ascend.kv_ports_clear,
    ),
    "kv-port-low": Rule(
        severity="warning",
        source="Mooncake v0.3.7.post2; vllm-ascend pd_disaggregation_mooncake_multi_node.md",
        releases=releases_of("vllm-ascend"),
        check=ascend.kv_ports_recommended,
    ),
    "one-prefill-one-decode": Rule(
        severity="warning",
        source="vLLM-Ascend guide Kimi-K2.5, section 5.3",
        releases=releases_of("vllm-ascend"),
        check=ascend.decode_has_hosts_of_its_own,
    ),
    "vision-nixl": Rule(
        severity="warning",
        source="vllm docs/features/nixl_connector_compatibility.md",
        releases=releases_of("vllm", "vllm-ascend"),
        check=pairing.vision_over_nixl,
    ),
}
