"""Command lines that an engine does not start with, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Instead of the tiny model: a folder that is not there, one without a configuration, one whose configuration names
# an architecture that nobody knows, and a repository's name without a network.
Model = Literal["tiny", "nowhere", "empty", "unknown", "repository"]

# One of each way to leave: argparse, pydantic, an assertion, the core's process, a port.
LOGGED = (
    "unknown flag",
    "longer than the model's context",
    "hybrid without local ranks",
    "port out of a service's address",
    "host that is not this one",
)

_KV = "--kv-transfer-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A command line or environment that the engine does not start with.

    Args:
        arguments: after `vllm serve MODEL --port PORT`.
    """

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    model: Model

    @property
    def is_logged(self) -> bool:
        """Whether its last words are kept, for production to read."""
        return self.name in LOGGED


def refused(
    name: str, *arguments: str, env: Mapping[str, str] | None = None, model: Model = "tiny"
) -> Refusal:
    """A case in one line."""
    return Refusal(name=name, arguments=arguments, env=env or {}, model=model)


def refused_kv(name: str, config: Any, env: Mapping[str, str] | None = None) -> Refusal:
    """The same for a value of --kv-transfer-config: JSON, or text that is given as it is."""
    text = config if isinstance(config, str) else json.dumps(config)
    return refused(name, _KV, text, env=env)


def nixl(**more: Any) -> dict[str, Any]:
    """A KV-transfer configuration; what is given comes on top."""
    return {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_buffer_device": "cpu",
        **more,
    }


# What argparse refuses.
_PARSED = (
    refused("unknown flag", "--no-such-flag", "1"),
    refused("flag without its value", "--max-model-len"),
    refused("word where a number belongs", "--tensor-parallel-size", "two"),
    refused("value that is no choice", "--all2all-backend", "fast"),
    refused("share of memory that is a word", "--gpu-memory-utilization", "most"),
    refused("parts of a binary unit", "--max-model-len", "1.5K"),
    refused("no unit of numbers", "--max-num-batched-tokens", "4kk"),
    refused("unknown type of KV cache", "--kv-cache-dtype", "fp7"),
    refused("unknown type of weights", "--dtype", "int8"),
    refused("unknown level of logs", "--uvicorn-log-level", "loud"),
    refused("level of optimisation that there is not", "--optimization-level", "9"),
    refused("names that are none", "--served-model-name"),
    refused("configuration file that is nowhere", "--config", "/nowhere/engine.yaml"),
    refused("unknown key of compilation", "--compilation-config", '{"no_such":1}'),
    refused("unknown mode of graphs", "--compilation-config", '{"cudagraph_mode":"NO_SUCH"}'),
    refused(
        "sizes of graphs that are words", "--compilation-config.cudagraph_capture_sizes", '["a"]'
    ),
    refused("limit of images that is a word", "--limit-mm-per-prompt", '{"image":"many"}'),
    refused("overrides that are no JSON", "--hf-overrides", "{a"),
    refused("chat template that is nowhere", "--chat-template", "/nowhere/chat.jinja"),
)

_KV_PARSED = (
    refused_kv("unknown KV role", {"kv_connector": "NixlConnector", "kv_role": "both"}),
    refused_kv("KV connector without a role", {"kv_connector": "NixlConnector"}),
    refused_kv("unknown key of a JSON flag", {**nixl(), "kv_rack": 1}),
    refused_kv("unknown KV connector", {"kv_connector": "NoConnector", "kv_role": "kv_both"}),
    refused_kv("JSON flag that is no JSON", "{kv}"),
    refused_kv("JSON flag that is a list", "[]"),
    refused_kv("JSON flag that is a number", "7"),
    refused_kv("JSON flag that ends early", '{"kv_connector":'),
    refused_kv("KV port that is a word", nixl(kv_port="first")),
    refused_kv("KV port that is a fraction", nixl(kv_port=1.5)),
    refused_kv("further KV settings that are a list", nixl(kv_connector_extra_config=[])),
    refused_kv("unknown policy of KV failures", nixl(kv_load_failure_policy="maybe")),
    refused_kv("two wrong keys of a JSON flag", nixl(kv_port="first", kv_rank="second")),
)

# What its configuration refuses.
_CONFIGURED = (
    refused("longer than the model's context", "--max-model-len", "400000"),
    refused("no context", "--max-model-len", "0"),
    refused(
        "more sequences than tokens", "--max-num-seqs", "512", "--max-num-batched-tokens", "256"
    ),
    refused("no sequences", "--max-num-seqs", "0"),
    refused(
        "context longer than a batch without chunks",
        "--no-enable-chunked-prefill",
        "--max-num-batched-tokens",
        "256",
    ),
    refused("more memory than there is", "--gpu-memory-utilization", "1.5"),
    refused("no memory", "--gpu-memory-utilization", "0"),
    refused("rank outside of the group", "-dp", "4", "--data-parallel-rank", "4"),
    refused("rank in a group of one", "-dp", "1", "--data-parallel-rank", "0"),
    refused("more local ranks than ranks", "-dp", "2", "--data-parallel-size-local", "4"),
    refused("hybrid without local ranks", "-dp", "4", "--data-parallel-hybrid-lb"),
    refused(
        "hybrid and external",
        "-dp",
        "2",
        "--data-parallel-hybrid-lb",
        "--data-parallel-external-lb",
    ),
    refused(
        "rank and several local ranks",
        "-dp",
        "4",
        "--data-parallel-rank",
        "1",
        "--data-parallel-size-local",
        "2",
    ),
    refused("external without a rank", "-dp", "4", "--data-parallel-external-lb"),
    refused("headless with API servers", "--headless", "--api-server-count", "2"),
    refused("node outside of the nodes", "--nnodes", "2", "--node-rank", "2"),
    refused("world not divisible by nodes", "-tp", "4", "--nnodes", "3"),
    refused("balancing of experts without experts in parallel", "--enable-eplb"),
    refused(
        "tensor parallel that does not divide the heads",
        "-tp",
        "3",
        "--distributed-executor-backend",
        "mp",
    ),
    refused("no tensor parallel", "-tp", "0"),
    refused("context parallel that does not divide", "-tp", "4", "-dcp", "3"),
    refused("unknown executor", "--distributed-executor-backend", "no_such"),
    refused("unknown quantization", "--quantization", "no_such"),
    refused("unknown loader", "--load-format", "no_such"),
    refused("unknown tool parser", "--enable-auto-tool-choice", "--tool-call-parser", "no_such"),
    refused("tools without a parser", "--enable-auto-tool-choice"),
    refused("unknown reasoning parser", "--reasoning-parser", "no_such"),
    refused("unknown key of speculation", "--speculative-config", '{"no_such":1}'),
    refused("speculation without a number", "--speculative-config", '{"method":"ngram"}'),
    refused(
        "unknown method of speculation",
        "--speculative-config",
        '{"method":"no_such","num_speculative_tokens":2}',
    ),
    refused("model in no folder", model="nowhere"),
    refused("model in an empty folder", model="empty"),
    refused("model of an unknown kind", model="unknown"),
    refused("model of a repository without a network", model="repository"),
    refused(
        "unknown variable, validated", "--fail-on-environ-validation", env={"VLLM_NO_SUCH": "1"}
    ),
)

# What fails when it opens its ports and starts its core.
_STARTED = (
    refused("port out of a service's address", env={"VLLM_PORT": "tcp://192.0.2.1:8000"}),
    refused("port beyond all ports", "--port", "70000"),
    refused("host that is not this one", "--host", "192.0.2.1"),
    refused("KV transfer over a backend that there is not",
            _KV, json.dumps(nixl(kv_connector_extra_config={"backends": ["NO_SUCH"]}))),
    refused("side channel's port that is a word", _KV, json.dumps(nixl()),
            env={"VLLM_NIXL_SIDE_CHANNEL_PORT": "first"}),
    refused("side channel on an address that is not this host's", _KV, json.dumps(nixl()),
            env={"VLLM_NIXL_SIDE_CHANNEL_HOST": "192.0.2.1"}),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = (*_PARSED, *_KV_PARSED, *_CONFIGURED, *_STARTED)
