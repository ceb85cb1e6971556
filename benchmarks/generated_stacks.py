"""Stack files of any size for the benchmarks: each shape stresses another part of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

GB200_UNIFIED = """\
summary: {count} replicas of DP16, one process per rank
checkpoint: kimi-k2.5-nvfp4
accelerator: gb200
engine: {{name: vllm, version: 0.22.1}}
platform: existing-hosts
roles:
  unified: {{replicas: {count}, data_parallel: 16, load_balancing: external, expert_parallel: true}}
defaults: {{max_model_len: 32768}}
router: {{name: vllm-router}}
"""

GB200_POOL = """\
summary: one prefill/decode pool, {prefill} prefill and {decode} decode replicas
checkpoint: kimi-k2.5-nvfp4
accelerator: gb200
engine: {{name: vllm, version: 0.22.1}}
platform: existing-hosts
roles:
  prefill: {{replicas: {prefill}, data_parallel: 16, load_balancing: external, flags: {{enforce-eager: true}}}}
  decode: {{replicas: {decode}, data_parallel: {width}, load_balancing: external}}
defaults: {{expert_parallel: true, max_model_len: 32768, gpu_memory_utilization: 0.95}}
kv_transfer: nixl
router: {{name: vllm-router}}
"""

ASCEND_POOL = """\
summary: one prefill/decode pool on Ascend, {prefill} prefill and {decode} decode replicas
checkpoint: kimi-k2.5-w4a8
accelerator: ascend-a3
engine: {{name: vllm-ascend, version: 0.22.1rc1}}
platform: existing-hosts
roles:
  prefill:
    replicas: {prefill}
    data_parallel: 32
    load_balancing: external
    env: {{VLLM_ASCEND_ENABLE_FLASHCOMM1: "0"}}
  decode: {{replicas: {decode}, data_parallel: 32, load_balancing: external}}
defaults: {{expert_parallel: true, max_model_len: 8192, gpu_memory_utilization: 0.95}}
kv_transfer: mooncake
router: {{name: ascend-proxy}}
"""

SHARED = """\
summary: {count} TP4 replicas packed two to a host
checkpoint: kimi-k2.5-int4
accelerator: b200
engine: {{name: vllm, version: 0.22.1}}
platform: existing-hosts
placement: shared
roles:
  unified: {{replicas: {count}, tensor_parallel: 4, max_model_len: 32768}}
router: {{name: vllm-router}}
"""


def unified(ranks: int) -> str:
    """External DP16 replicas: 625 of them for 10,000 ranks."""
    return GB200_UNIFIED.format(count=ranks // 16)


def pool(ranks: int) -> str:
    """A fifth of the ranks prefill; decode groups as wide as the side channel's ports allow."""
    decode = ranks * 4 // 5
    count = -(-decode // 2000)
    return GB200_POOL.format(prefill=ranks // 5 // 16, decode=count, width=decode // count)


def ascend_pool(ranks: int) -> str:
    """Mooncake: a KV configuration of its own for every group."""
    return ASCEND_POOL.format(prefill=ranks // 5 // 32, decode=ranks * 4 // 5 // 32)


def shared(ranks: int) -> str:
    """Replicas that are packed: the search for a host with room."""
    return SHARED.format(count=ranks // 2 * 2)


SHAPES: Mapping[str, Callable[[int], str]] = {
    "DP16 replicas, external": unified,
    "prefill/decode pool, NIXL": pool,
    "prefill/decode pool, Mooncake on Ascend": ascend_pool,
    "TP4 replicas, shared hosts": shared,
}

# 16 prefill hosts of 4 ranks, 48 decode hosts in 12 groups of 16 ranks
HOSTS_64 = GB200_POOL.format(prefill=4, decode=12, width=16)
