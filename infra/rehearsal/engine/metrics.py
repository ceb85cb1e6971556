"""The Prometheus text of a front end: one series per rank."""

from __future__ import annotations

from typing import NamedTuple

COUNTERS = {
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:generation_tokens": "Number of generation tokens processed.",
    "vllm:request_success": "Count of successfully processed requests.",
}
GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}


class Totals:
    """What one rank has done, as its front end counts it."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.requests: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.running = 0
        self.transfers = 0


class Series(NamedTuple):
    """The labels of one rank."""

    engine: str
    model: str


def vllm_metrics(
    ranks: dict[int, Totals], model: str, cache_blocks: int, *, has_nixl: bool = False
) -> str:
    """Return vLLM's metrics.

    Args:
        ranks: totals by data-parallel rank.
        model: the served model's name.
        cache_blocks: number of KV blocks of a rank.
        has_nixl: whether KV caches are fetched over NIXL, which counts them.
    """
    lines: list[str] = []
    if has_nixl:
        name = "vllm:nixl_xfer_time_seconds"
        lines += [f"# HELP {name} Histogram of transfer duration.", f"# TYPE {name} histogram"]
        for rank, totals in ranks.items():
            labels = f'engine="{rank}",model_name="{model}"'
            lines.append(f"{name}_count{{{labels}}} {float(totals.transfers)}")
    for name, text in GAUGES.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for rank, totals in ranks.items():
            value = float(totals.running) if name.endswith("running") else 0.0
            lines.append(f'{name}{{engine="{rank}",model_name="{model}"}} {value}')
    for name, text in COUNTERS.items():
        lines += [f"# HELP {name}_total {text}", f"# TYPE {name}_total counter"]
        for rank, totals in ranks.items():
            labels = f'engine="{rank}"'
            if name.endswith("request_success"):
                for reason, count in totals.requests.items():
                    inner = f'{labels},finished_reason="{reason}",model_name="{model}"'
                    lines.append(f"{name}_total{{{inner}}} {float(count)}")
            else:
                value = totals.prompt_tokens if "prompt" in name else totals.generation_tokens
                lines.append(f'{name}_total{{{labels},model_name="{model}"}} {float(value)}')
    lines += ["# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig"]
    lines += ["# TYPE vllm:cache_config_info gauge"]
    for rank in ranks:
        lines.append(
            f'vllm:cache_config_info{{engine="{rank}",num_gpu_blocks="{cache_blocks}"}} 1.0'
        )
    return "\n".join(lines) + "\n"


def sglang_metrics(totals: Totals, model: str) -> str:
    """Return SGLang's metrics."""
    labels = f'model_name="{model}"'
    values = {
        "sglang:prompt_tokens_total": float(totals.prompt_tokens),
        "sglang:generation_tokens_total": float(totals.generation_tokens),
        "sglang:num_requests_total": float(sum(totals.requests.values())),
        "sglang:num_running_reqs": float(totals.running),
        "sglang:num_queue_reqs": 0.0,
        "sglang:token_usage": 0.0,
    }
    lines = []
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name} {kind}", f"{name}{{{labels}}} {value}"]
    return "\n".join(lines) + "\n"
