"""What differs between processes that are otherwise one command: rank, address, device, port."""

from __future__ import annotations

from collections.abc import Mapping

PER_PROCESS_FLAGS = frozenset(
    {
        "port",
        "data-parallel-rank",
        "data-parallel-start-rank",
        "node-rank",
        "headless",
        "data-parallel-address",
        "master-addr",
        "dist-init-addr",
    }
)
PER_PROCESS_VARIABLES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "VLLM_HOST_IP",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_MOONCAKE_BOOTSTRAP_PORT",
        "HCCL_IF_IP",
    }
)
# Keys inside JSON flags.
PER_PROCESS_KEYS: Mapping[str, frozenset[str]] = {
    "kv-transfer-config": frozenset({"engine_id", "kv_port"}),
}

# Written by the compiler for prefill and decode; a role that does both may name a cache beside its engine.
OF_TRANSFER = frozenset({"kv-transfer-config"})
