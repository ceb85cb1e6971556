"""What processes of one group may be told differently; all else that an engine reads is equal among them.

Every rank of a group takes every step at the same time, and devices of several hosts that share a rank run one batch.
Read in vllm v1/engine/core.py and v1/worker/gpu_model_runner.py@0.22.1 (sizes of a step are agreed on between ranks),
v1/executor/multiproc_executor.py@0.22.1 (workers of a follower read its own command line), sglang
srt/managers/scheduler.py@0.5.9 (each rank schedules the broadcast requests by itself); vllm#44718.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from infra.engines.per_process_settings import PER_PROCESS_FLAGS, PER_PROCESS_VARIABLES


class GroupSettings(NamedTuple):
    """What an engine family lets the processes of one group differ in.

    Args:
        own_flags: of each process: its place, what its HTTP server alone reads, what it logs, what its host has.
        own_keys: likewise, at any depth of a flag's JSON.
        loose_flags: meant to be equal; where they differ, the group runs all the same.
        own_variables: fits the whole name of a variable that is each process's own.
        step_variables: fits the whole name of a variable that decides what ranks exchange in a step.
        loose_variables: fits the whole name of a variable of a library that all processes read; the engine's own
            stand in the release's catalogue.
    """

    own_flags: frozenset[str]
    own_keys: Mapping[str, frozenset[str]]
    loose_flags: frozenset[str]
    own_variables: re.Pattern[str]
    step_variables: re.Pattern[str]
    loose_variables: re.Pattern[str]


# Where a process is, and how its HTTP server is reached. Ports and modes of a group are judged by rules of their own.
_PLACE = """
    uds grpc grpc-port grpc-mode grpc-http-sidecar-port device-ids data-parallel-size-local data-parallel-rpc-port
    data-parallel-external-lb data-parallel-hybrid-lb data-parallel-multi-port-external-lb data-parallel-supervisor-port
    master-port host numa-bind numa-bind-cpus numa-bind-nodes
"""
# Read by the API server alone, before a request reaches a rank or after its answer has.
_FRONT = """
    allow-credentials allowed-headers allowed-local-media-path allowed-media-domains allowed-methods allowed-origins
    api-key api-server-count chat-template default-chat-template-kwargs enable-ssl-refresh served-model-name
    ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile ssl-keyfile-password stream-interval
    tool-call-parser tool-server trust-request-chat-template
"""
_VLLM_FRONT = """
    anthropic-disabled-thinking-effort chat-template-content-format cohere-format cohere-is-reasoning-model
    disable-access-log-for-endpoints disable-fastapi-docs disable-frontend-multiprocessing disable-uvicorn-access-log
    enable-auto-tool-choice enable-force-include-usage enable-log-deltas enable-log-outputs enable-log-requests
    enable-offline-docs enable-prompt-tokens-details enable-request-id-headers enable-server-load-tracking
    enable-tokenizer-info-endpoint exclude-tools-when-tool-choice-none generation-config h11-max-header-count
    h11-max-incomplete-event-size interleave-mm-strings io-processor-plugin log-config-file log-error-stack
    max-log-len max-num-queued-reqs max-num-queued-tokens media-io-kwargs middleware override-generation-config
    reasoning-effort-map renderer-num-workers response-role return-tokens-as-token-ids root-path
    sse-keep-alive-interval tokens-only tool-parser-plugin tool-strict-level trust-request-mm-kwargs uvicorn-log-level
"""
_SGLANG_FRONT = """
    abort-on-priority-when-disabled admin-api-key asr-max-buffer-seconds asr-max-concurrent-sessions batch-notify-size
    completion-template detokenizer-worker-num disable-tokenizer-batch-decode dynamic-batch-tokenizer-batch-size
    dynamic-batch-tokenizer-batch-timeout enable-cache-report enable-dynamic-batch-tokenizer
    enable-http-worker-reuseport enable-http2 enable-response-store enable-tokenizer-batch-encode fastapi-root-path
    file-storage-path grpc-response-timeout-secs hf-chat-template-name http2-initial-connection-window-size
    http2-max-concurrent-streams incremental-streaming-output max-queued-requests media-url-max-file-size-mb
    mm-io-worker-num mm-max-concurrent-calls mm-per-request-timeout mm-processor-worker-num preferred-sampling-params
    return-input-ids return-output-ids sampling-defaults sidecar sidecar-args skip-server-warmup smg-grpc-mode
    stream-output stream-response-default-include-usage strip-thinking-cache tokenizer-metrics-allowed-custom-labels
    tokenizer-metrics-custom-labels-header tokenizer-worker-num uvicorn-access-log-exclude-prefixes warmups
"""
# What a process writes down, how long it waits, what lies on its host, and whether it may run what lies there.
_WATCHED = """
    collect-detailed-traces config download-dir enable-mfu-metrics fail-on-environ-validation kv-events-config log-level
    otlp-traces-endpoint show-hidden-metrics-for-version shutdown-timeout trust-remote-code
"""
_VLLM_WATCHED = """
    aggregate-engine-logging cpu-distributed-timeout-seconds cudagraph-metrics custom-histogram-buckets
    disable-log-stats distributed-timeout-seconds dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s enable-layerwise-nvtx-tracing enable-logging-iteration-details
    enable-per-request-metrics gpu-memory-utilization hf-token jit-monitor-mode jit-monitor-verbose kv-cache-metrics
    kv-cache-metrics-sample logging-config max-parallel-loading-workers per-request-spec-decode-metrics
    profiler-config pt-load-map-location ray-workers-use-nsight safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads swap-space use-tqdm-on-load watchdog-config
"""
_SGLANG_WATCHED = """
    base-gpu-id bucket-e2e-request-latency bucket-inter-token-latency bucket-time-to-first-token
    collect-tokens-histogram crash-dump-folder custom-sigquit-handler debug-tensor-dump-input-file
    debug-tensor-dump-layers debug-tensor-dump-output-folder decode-log-interval disable-hicache-numa-detect
    disable-outlines-disk-cache disaggregation-bootstrap-port disaggregation-ib-device dist-timeout
    elastic-ep-join-rank-offset enable-forward-pass-metrics enable-layerwise-nvtx-marker enable-metrics
    enable-metrics-for-all-schedulers enable-request-time-stats-logging enable-trace encoder-bootstrap-port
    engine-info-bootstrap-port expert-balancedness-report-mode export-metrics-to-file export-metrics-to-file-dir
    extra-metric-labels forward-pass-metrics-ipc-name forward-pass-metrics-worker-id gated-launch-port gc-threshold
    gc-warning-threshold-secs generation-tokens-buckets gpu-id-step load-publish-endpoint
    load-snapshot-publish-interval log-level-http log-requests log-requests-format log-requests-level
    log-requests-target mooncake-ib-device nccl-port numa-node otlp-service-name
    prefill-delayer-forward-passes-buckets prefill-delayer-wait-seconds-buckets prompt-tokens-buckets show-time-cost
    soft-watchdog-timeout spec-trace-dir trace-modules watchdog-timeout weight-cache-socket weight-cache-timeout
    weight-loader-disable-mmap weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
    weight-loader-prefetch-num-threads
"""
# Where a group has one model under two names, `model-path` says so.
_MODEL = "model model-path"
# Ways to the same weights, room beside the KV cache, the structure of answers: no step is different for another rank.
_LOOSE = "load-format model-loader-extra-config reasoning-parser"
_VLLM_LOOSE = """
    cpu-offload-gb cpu-offload-params ec-transfer-config kv-cache-memory-bytes kv-offloading-backend kv-offloading-size
    mm-processor-cache-gb mm-processor-cache-type num-gpu-blocks-override reasoning-config reasoning-parser-plugin
"""
_SGLANG_LOOSE = "custom-weight-loader random-seed startup-weight-load-mode"

# Names, addresses, ports, files, logs and limits of waiting are those of a host or of whoever watches it.
_OWN_VARIABLES = (
    r".*_(?:SOCKET_IFNAME|HCA|NET_DEVICES|GID_INDEX|TC|SL|TRAFFIC_CLASS|NIC_SELECTION_VARS|PCIE_MAPPING)",
    r".*(?:_|^)(?:HOST|HOST_IP|HOSTNAME|IP|PORT|PORT_BASE|ADDR|URL|ENDPOINT|RANK|RANK_LOCAL|LOCAL_RANK|NODE_ID)",
    r".*_(?:PATH|DIR|FILE|FOLDER|ROOT|CACHE|HOME|TOKEN|KEY|KEY_ID|SECRET|PREFIX|SUFFIX)",
    r".*_(?:CACHE|CONFIG|RPC)_(?:ROOT|DIR|PATH|BASE_PATH|MB|GB|SIZE_MB|TTL_HOURS|MODEL_CLEAN)",
    r".*(?:LOG|DEBUG|TRACE|TRACING|PROFIL|NVTX|METRIC|TIMEOUT|WAIT|WATCHDOG|WARNING|DUMP|USAGE|DO_NOT_TRACK).*",
    r".*(?:_|^)(?:MEDIA|IMAGE|VIDEO|AUDIO|HTTP|TOOL|CHAT|FETCH|NUMA|OMP|THREADS?|WORKERS?|CI|TEST|BUILD)(?:_.*|$)",
    "VLLM_USE_MODELSCOPE|SGLANG_USE_MODELSCOPE",
    # how soon a prefill is cut for its kernel: published so, on one node of two (sgl-project/sglang lws-examples)
    "SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD",
    "HCCL_NPU_SOCKET_PORT_RANGE|HCCL_HOST_SOCKET_PORT_RANGE",
)
# What decides a collective, its size or its order: NCCL's user guide (environment variables) wants the algorithm and
# protocol alike on all ranks, and one that has no InfiniBand meets no other over it; the engines' decide which
# collective runs, how many tokens go through it, or how layers are cut.
_STEP_VARIABLES = (
    r"(?:NCCL|RCCL)_(?:ALGO|PROTO|NET|IB_DISABLE|MNNVL_ENABLE)",
    r"HCCL_(?:ALGO|OP_EXPANSION_MODE)",
    r"VLLM_(?:ALL2ALL_BACKEND|ALLREDUCE_USE_\w+|DISABLE_PYNCCL|DP_SIZE|DP_MASTER_IP|USE_NCCL_SYMM_MEM)",
    r"VLLM_(?:\w*MOE_DP_CHUNK\w*|PP_LAYER_PARTITION|DEEPEP\w*|USE_V2_MODEL_RUNNER|FLASHINFER_ALLREDUCE\w*)",
    r"VLLM_(?:USE_DIRECT_DCP_\w+|DCP_Q_REPLICATE|ROCM_QUICK_REDUCE_\w+|MLA_DISABLE|BATCH_INVARIANT|KV_CACHE_LAYOUT)",
    r"VLLM_ASCEND_(?:ENABLE_FLASHCOMM1|ENABLE_FUSED_MC2|BALANCE_SCHEDULING)",
    r"SGLANG_(?:\w*MAX_DISPATCH_TOKENS_PER_RANK|PP_LAYER_PARTITION|DP_USE_\w+|USE_1STAGE_ALLREDUCE|DEEPEP_BF16_DISPATCH)",
    r"SGLANG_(?:SCHEDULER_\w+|ENABLE_SPEC_V2|SYNC_TOKEN_IDS_ACROSS_TP|SPEC_TP_SYNC|USE_AITER(?:_AR|_AG)?)",
)
_LIBRARIES = (r"(?:NCCL|RCCL|HCCL|NVSHMEM|UCX|FI|DEEPEP|DEEP_EP|TORCH_NCCL|AITER|MORI|GLOO)_\w+",)


def _names(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


_KEYS: Mapping[str, frozenset[str]] = {
    "kv-transfer-config": frozenset(
        {"engine_id", "kv_port", "kv_ip", "kv_rank", "http_port", "proxy_ip", "proxy_port"}
    ),
    "compilation-config": frozenset({"cache_dir", "local_cache_dir", "debug_dump_path"}),
}


def _settings(own: str, loose: str) -> GroupSettings:
    return GroupSettings(
        own_flags=PER_PROCESS_FLAGS | _names(_PLACE, _FRONT, _WATCHED, _MODEL, own),
        own_keys=_KEYS,
        loose_flags=_names(_LOOSE, loose),
        own_variables=_one_of((*PER_PROCESS_VARIABLES, *_OWN_VARIABLES)),
        step_variables=_one_of(_STEP_VARIABLES),
        loose_variables=_one_of(_LIBRARIES),
    )


VLLM = _settings(f"{_VLLM_FRONT} {_VLLM_WATCHED}", _VLLM_LOOSE)
SGLANG = _settings(f"{_SGLANG_FRONT} {_SGLANG_WATCHED}", _SGLANG_LOOSE)
# Upstream's nightly deployments run with one node's keys spelt as an older release had them, and with a switch of
# attention that one node alone has (vllm-ascend tests/e2e/nightly/multi_node@182b75e).
ASCEND = VLLM._replace(loose_flags=VLLM.loose_flags | {"additional-config"})
