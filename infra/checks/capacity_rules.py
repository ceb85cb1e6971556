"""Rules about lengths and memory, about what strangers reach, and about imported plans."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    capacity,
    derived,
    exposure,
    patience,
    speculation,
)
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
        releases="vllm, vllm-ascend",
        check=capacity.batches_not_empty,
    ),
    "batched-tokens": Rule(
        severity="error",
        source="vllm config/scheduler.py, config/vllm.py, config/speculative.py@0.20.0, 0.21.0, 0.27.1",
        releases="vllm, vllm-ascend; what drafts take 0.20.0 and later",
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
    "swap-space": Rule(
        severity="warning",
        source="vllm config/cache.py, engine/arg_utils.py@0.17.0; AWS instance types",
        releases="vllm before 0.18.0",
        check=capacity.swap_space_fits,
    ),
    "probe-patience": Rule(
        severity="error",
        source="kubernetes.io, liveness and startup probes; kserve/kserve#5062",
        check=patience.probes_wait,
    ),
    "ready-timeout": Rule(
        severity="warning",
        source="vllm v1/engine/core_client.py@0.22.1; infra/catalog/figures/loading.yaml",
        releases="vllm, vllm-ascend",
        check=patience.api_servers_wait,
    ),
    "router-patience": Rule(
        severity="warning",
        source="vllm-router 0.1.17, sglang-router 0.3.2 (run)",
        check=patience.router_waits,
    ),
    "load-target": Rule(
        severity="warning",
        source="infra/catalog/figures/loading.yaml",
        check=patience.storage_meets_target,
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
    "secret-value": Rule(
        severity="warning",
        source="docs/decisions.md; vllm-project/production-stack#14",
        check=exposure.secrets_referenced,
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
