"""Rules about who waits how long, what strangers reach, and whether a plan that is given agrees with itself."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    advisories,
    derived,
    edge,
    entrances,
    exposure,
    loading,
    patience,
    secret_ways,
)
from infra.checks.rule_releases import releases_of
from infra.checks.view import Rule

OPERATION_RULES: Mapping[str, Rule] = {
    "probe-patience": Rule(
        severity="error",
        source="kubernetes.io, liveness and startup probes; kserve/kserve#5062",
        check=patience.probes_wait,
    ),
    "ready-timeout": Rule(
        severity="warning",
        source="vllm v1/engine/core_client.py@0.22.1; infra/catalog/figures/loading.yaml",
        releases=releases_of("vllm", "vllm-ascend"),
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
    "mapped-weights": Rule(
        severity="warning",
        source="sgl-project/sglang#37806 (28 MiB/s on Lustre, 704 GiB in 43 s read ahead); vllm-project/vllm#24469, "
        "#37673, #39422; infra/catalog/packages/",
        releases=loading.MAPPING,
        check=loading.far_weights_are_read_whole,
    ),
    "media-path": Rule(
        severity="warning",
        source="vllm multimodal/media/connector.py@0.22.1; vLLM-Ascend guide Kimi-K2.5",
        check=exposure.media_path_narrow,
    ),
    "host-mount": Rule(
        severity="error",
        source="docs.docker.com, Docker daemon attack surface; kubernetes.io, Pod Security Standards: hostPath volumes",
        check=exposure.host_stays_closed,
    ),
    "host-program": Rule(
        severity="error",
        source="infra/render/units.py: a unit of the host's root; infra/engines/recognition.py",
        check=exposure.host_runs_what_is_known,
    ),
    "host-environment": Rule(
        severity="error",
        source="infra/plan/host_environment.py: ld.so(8), Python, bash(1), perlrun, Node.js, CUPTI, NCCL, OpenSSL",
        check=exposure.host_environment_is_plain,
    ),
    "host-remote-code": Rule(
        severity="error",
        source="transformers dynamic_module_utils.py; infra/render/units.py: a unit of the host's root",
        check=exposure.host_runs_pinned_models,
    ),
    "secret-elsewhere": Rule(
        severity="error",
        source="infra/spec/secret_file.py; infra/provision/secret_values.py: what a plan names is read and sent",
        check=secret_ways.secrets_are_the_plans,
    ),
    "token-endpoint": Rule(
        severity="error",
        source="huggingface_hub constants.py 2.4.0; modelscope 1.40.2 hub/utils/utils.py (infra/checks/secret_ways.py)",
        check=secret_ways.tokens_stay_hidden,
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
    "key-not-taken": Rule(
        severity="warning",
        source="infra/engines/credentials.py; sglang, sglang-router 0.3.2 (run)",
        check=exposure.secrets_are_taken,
    ),
    "secret-file": Rule(
        severity="warning",
        source="docs/security.md",
        check=exposure.secret_files_readable,
    ),
    "public-address": Rule(
        severity="warning",
        source="infra/catalog/routers/ and engines/ (access); vllm docs/usage/security.md",
        check=entrances.public_entrances,
    ),
    "open-entrance": Rule(
        severity="warning",
        source="infra/catalog/routers/ and engines/ (access); vllm docs/usage/security.md",
        check=entrances.open_entrances,
    ),
    "edge-paths": Rule(
        severity="error",
        source="routes of the engines' and routers' packages (infra/plan/edge.py)",
        check=edge.edge_paths_are_clients,
    ),
    "edge-secrets": Rule(
        severity="error", source="infra/engines/haproxy.py", check=edge.edge_secrets_are_there
    ),
    "edge-tls": Rule(
        severity="error", source="infra/engines/haproxy.py", check=edge.edge_tls_is_said
    ),
    "edge-passed-by": Rule(
        severity="warning",
        source="vllm docs/usage/security.md",
        check=edge.edge_is_not_passed_by,
    ),
    "edge-in-clear": Rule(
        severity="warning", source="RFC 6750, section 5.3", check=edge.edge_is_not_in_clear
    ),
    "advisory": Rule(
        severity="warning",
        source="infra/catalog/advisories/",
        check=advisories.no_known_holes,
    ),
    "closed-to-clients": Rule(
        severity="warning", source="infra/render/reach.py", check=exposure.clients_let_in
    ),
    "networks-unread": Rule(
        severity="warning", source="infra/render/reach.py", check=exposure.networks_are_read
    ),
    "derived-field": Rule(
        severity="error", source="docs/architecture.md", check=derived.derived_fields_agree
    ),
}
