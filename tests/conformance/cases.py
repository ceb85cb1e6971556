"""The cases as data: what is started, what is asked of it, and what a difference would mean for us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.conformance.shapes import GIVEN_ID

KEY = "conformance"
MODEL = "tiny"
CONTEXT = 512
PROMPT = "The quick brown fox jumps over the lazy dog ."
LONG = "fox " * 600
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PREFILL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}

Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A command line or environment that the engine does not start with.

    Args:
        arguments: after `vllm serve MODEL --port PORT`.
    """

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a serving engine.

    Args:
        name: `group: what`.
        body: JSON, or text that is sent as it is; None for no body.
        key: whether the request carries the engine's key.
        hides: paths of the answer that depend on what a model says, not on the engine.
    """

    name: str
    path: str
    method: Method = "POST"
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    key: bool = True
    hides: tuple[str, ...] = ()


def completion(
    name: str,
    *,
    key: bool = True,
    headers: Mapping[str, str] | None = None,
    hides: tuple[str, ...] = (),
    **more: Any,
) -> Request:
    """A request for a completion; None takes a field away."""
    body = {
        "model": MODEL,
        "prompt": PROMPT,
        "max_tokens": 4,
        "ignore_eos": True,
        "temperature": 0,
        **more,
    }
    body = {key: value for key, value in body.items() if value is not None}
    return Request(
        name=f"completions: {name}",
        path=COMPLETIONS,
        body=body,
        key=key,
        headers=headers or {},
        hides=hides,
    )


def chat(
    name: str, *, headers: Mapping[str, str] | None = None, hides: tuple[str, ...] = (), **more: Any
) -> Request:
    """The same for a chat."""
    said = [{"role": "user", "content": PROMPT}]
    body = {
        "model": MODEL,
        "messages": said,
        "max_tokens": 4,
        "ignore_eos": True,
        "temperature": 0,
        **more,
    }
    body = {key: value for key, value in body.items() if value is not None}
    return Request(name=f"chat: {name}", path=CHAT, body=body, headers=headers or {}, hides=hides)


def get(path: str, *, key: bool = True) -> Request:
    name = f"GET {path}" if key else f"GET {path} without the key"
    return Request(name=name, path=path, method="GET", key=key)


USAGE = {"include_usage": True}
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]

REFUSALS: tuple[Refusal, ...] = (
    Refusal(name="unknown flag", arguments=("--no-such-flag", "1")),
    Refusal(name="flag without its value", arguments=("--max-model-len",)),
    Refusal(name="word where a number belongs", arguments=("--tensor-parallel-size", "two")),
    Refusal(name="value that is no choice", arguments=("--all2all-backend", "fast")),
    Refusal(
        name="unknown KV role",
        arguments=("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"both"}'),
    ),
    Refusal(
        name="KV connector without a role",
        arguments=("--kv-transfer-config", '{"kv_connector":"NixlConnector"}'),
    ),
    Refusal(
        name="unknown key of a JSON flag",
        arguments=(
            "--kv-transfer-config",
            '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_rack":1}',
        ),
    ),
    Refusal(
        name="unknown KV connector",
        arguments=("--kv-transfer-config", '{"kv_connector":"NoConnector","kv_role":"kv_both"}'),
    ),
    Refusal(name="JSON flag that is no JSON", arguments=("--kv-transfer-config", "{kv}")),
    Refusal(name="longer than the model's context", arguments=("--max-model-len", "400000")),
    Refusal(
        name="more sequences than tokens",
        arguments=("--max-num-seqs", "512", "--max-num-batched-tokens", "256"),
    ),
    Refusal(name="rank outside of the group", arguments=("-dp", "4", "--data-parallel-rank", "4")),
    Refusal(name="rank in a group of one", arguments=("-dp", "1", "--data-parallel-rank", "0")),
    Refusal(
        name="more local ranks than ranks",
        arguments=("-dp", "2", "--data-parallel-size-local", "4"),
    ),
    Refusal(name="hybrid without local ranks", arguments=("-dp", "4", "--data-parallel-hybrid-lb")),
    Refusal(
        name="rank and several local ranks",
        arguments=("-dp", "4", "--data-parallel-rank", "1", "--data-parallel-size-local", "2"),
    ),
    Refusal(name="node outside of the nodes", arguments=("--nnodes", "2", "--node-rank", "2")),
    Refusal(name="world not divisible by nodes", arguments=("-tp", "4", "--nnodes", "3")),
    Refusal(name="balancing of experts without experts in parallel", arguments=("--enable-eplb",)),
    Refusal(
        name="tensor parallel that does not divide the heads",
        arguments=("-tp", "3", "--distributed-executor-backend", "mp"),
    ),
    Refusal(
        name="unknown tool parser",
        arguments=("--enable-auto-tool-choice", "--tool-call-parser", "no_such"),
    ),
    Refusal(name="tools without a parser", arguments=("--enable-auto-tool-choice",)),
    Refusal(name="unknown reasoning parser", arguments=("--reasoning-parser", "no_such")),
    Refusal(
        name="port out of a service's address",
        arguments=(),
        env={"VLLM_PORT": "tcp://192.0.2.1:8000"},
    ),
    Refusal(
        name="unknown variable, validated",
        arguments=("--fail-on-environ-validation",),
        env={"VLLM_NO_SUCH": "1"},
    ),
)

REQUESTS: tuple[Request, ...] = (
    get("/health"),
    get("/ping"),
    Request(name="POST /ping", path="/ping"),
    get("/version"),
    get("/load"),
    get("/v1/models"),
    get("/nowhere"),
    get("/server_info"),
    get("/is_sleeping"),
    get(COMPLETIONS),
    Request(name="POST /health", path="/health"),
    get("/health", key=False),
    get("/v1/models", key=False),
    Request(
        name="wrong key",
        path="/v1/models",
        method="GET",
        key=False,
        headers={"Authorization": "Bearer wrong"},
    ),
    Request(
        name="tokenize a prompt",
        path="/tokenize",
        body={"model": MODEL, "prompt": PROMPT},
        hides=("tokens",),
    ),
    Request(
        name="tokenize messages",
        path="/tokenize",
        body={"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]},
        hides=("tokens", "count"),
    ),
    Request(
        name="detokenize",
        path="/detokenize",
        body={"model": MODEL, "tokens": [4, 5]},
        hides=("prompt",),
    ),
    Request(
        name="embeddings of a model that generates",
        path="/v1/embeddings",
        body={"model": MODEL, "input": "x"},
    ),
    completion("four tokens"),
    completion("without a limit", max_tokens=None),
    completion(
        "the model's own end",
        ignore_eos=None,
        max_tokens=100,
        logit_bias={"0": 100},
        hides=("usage.completion_tokens", "usage.total_tokens", "choices.0.text"),
    ),
    completion("token ids", prompt=[10, 11, 12]),
    completion("two prompts", prompt=[PROMPT, PROMPT]),
    completion("two answers", n=2),
    completion("echo", echo=True),
    completion("probabilities", logprobs=1, hides=("choices.0.logprobs",)),
    completion("seed and penalties", seed=1, temperature=0.5, top_p=0.5, presence_penalty=0.1),
    completion("unknown field", no_such_field=1),
    completion("a stream", stream=True),
    completion("a stream with usage", stream=True, stream_options=USAGE),
    completion(
        "a stream with usage at every token",
        stream=True,
        stream_options={**USAGE, "continuous_usage_stats": True},
    ),
    completion("usage without a stream", stream_options=USAGE),
    completion("an id in the header", headers={"X-Request-Id": GIVEN_ID}),
    completion("an id in the body", request_id=GIVEN_ID),
    completion("rank 0 of one", headers={"X-data-parallel-rank": "0"}),
    completion("rank 1 of one", headers={"X-data-parallel-rank": "1"}),
    completion("a rank that is no number", headers={"X-data-parallel-rank": "x"}),
    completion("no model named", model=None),
    completion("a model that is not served", model="other"),
    completion("no prompt", prompt=None),
    completion("an empty prompt", prompt=""),
    completion("a prompt that is a number", prompt=7),
    completion("a prompt longer than the context", prompt=LONG),
    completion("more tokens than the context", max_tokens=CONTEXT),
    completion("more tokens than the context, from a short prompt", max_tokens=10 * CONTEXT),
    completion("no tokens", max_tokens=0),
    completion("fewer than no tokens", max_tokens=-1),
    completion("fewer tokens than it must have", min_tokens=8),
    completion("temperature below zero", temperature=-1),
    completion("top_p above one", top_p=2),
    completion("a limit that is a word", max_tokens="many"),
    completion("no answers", n=0),
    Request(
        name="completions: no JSON",
        path=COMPLETIONS,
        body="{",
        headers={"Content-Type": "application/json"},
    ),
    Request(name="completions: a list", path=COMPLETIONS, body=[1]),
    Request(
        name="completions: no body", path=COMPLETIONS, headers={"Content-Type": "application/json"}
    ),
    Request(
        name="completions: another content type",
        path=COMPLETIONS,
        body="hello",
        headers={"Content-Type": "text/plain"},
    ),
    chat("four tokens"),
    chat(
        "without a limit",
        max_tokens=None,
        ignore_eos=None,
        logit_bias={"0": 100},
        hides=("usage", "choices.0.message.content"),
    ),
    chat("max_completion_tokens", max_tokens=None, max_completion_tokens=3),
    chat("two answers", n=2),
    chat("a stream", stream=True),
    chat("a stream with usage", stream=True, stream_options=USAGE),
    chat("an id in the header", headers={"X-Request-Id": GIVEN_ID}),
    chat("no messages", messages=None),
    chat("an empty list of messages", messages=[]),
    chat("a message without a role", messages=[{"content": "x"}]),
    chat(
        "content in parts",
        messages=[{"role": "user", "content": [{"type": "text", "text": PROMPT}]}],
    ),
    chat(
        "a part of no known kind",
        messages=[{"role": "user", "content": [{"type": "smell", "smell": "x"}]}],
    ),
    chat("an image for a model of words", messages=[{"role": "user", "content": IMAGE}]),
    chat("tools without a parser", tools=[TOOL]),
    chat("tools that may not be used", tools=[TOOL], tool_choice="none"),
    chat("a model that is not served", model="other"),
    chat("a prompt longer than the context", messages=[{"role": "user", "content": LONG}]),
    chat("probabilities", logprobs=True, top_logprobs=1, hides=("choices.0.logprobs",)),
)
