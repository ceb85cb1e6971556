"""Rules about lengths, batches, drafts and memory."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import capacity, given, speculation
from infra.checks.rule_releases import releases_of
from infra.checks.view import Rule

CAPACITY_RULES: Mapping[str, Rule] = {
    "context-length": Rule(
        severity="error",
        source="vllm config/model.py@0.17.0, 0.22.1, 0.33.0",
        check=capacity.context_within_model,
    ),
    "batch-size": Rule(
        severity="error",
        source="vllm config/scheduler.py SchedulerConfig@0.17.0, 0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=capacity.batches_not_empty,
    ),
    "batched-tokens": Rule(
        severity="error",
        source="vllm config/scheduler.py, config/vllm.py, config/speculative.py@0.20.0, 0.21.0, 0.27.1",
        releases=releases_of("vllm", "vllm-ascend"),
        parts={"what drafts take": capacity.DRAFTS_TAKE_TOKENS},
        check=capacity.batch_holds_sequences,
    ),
    "draft-incomplete": Rule(
        severity="error",
        source="vllm config/speculative.py@0.17.0, 0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
        check=speculation.draft_complete,
    ),
    "capture-sizes": Rule(
        severity="warning",
        source="vllm config/compilation.py, config/vllm.py@0.22.1",
        releases=releases_of("vllm", "vllm-ascend"),
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
    "swap-space": Rule(
        severity="warning",
        source="vllm config/cache.py, engine/arg_utils.py@0.17.0; AWS instance types",
        releases=releases_of("vllm", "vllm-ascend", before="0.18.0"),
        check=capacity.swap_space_fits,
    ),
    "shared-memory": Rule(
        severity="error",
        source="NCCL user guide, troubleshooting, shared memory; ai-dynamo/dynamo#1408",
        check=given.shared_memory_enough,
    ),
    "devices-unused": Rule(
        severity="warning", source="kserve/kserve#5773", check=given.devices_used
    ),
    "hosts-unused": Rule(
        severity="warning",
        source="sbatch(1), --nodes; leaderworkerset.x-k8s.io/v1, size",
        check=given.hosts_used,
    ),
}
