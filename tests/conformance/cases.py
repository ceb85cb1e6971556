"""Requests to a serving engine, as data."""

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
NAMED = {"type": "function", "function": {"name": "no_such"}}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]

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
    get("/v1/models/tiny"),
    get("/v1"),
    get("/tokenize"),
    Request(name="POST /v1/models", path="/v1/models"),
    Request(name="POST /nowhere without the key", path="/nowhere", key=False),
    Request(name="POST /v1/nowhere without the key", path="/v1/nowhere", key=False),
    Request(name="tokenize nothing", path="/tokenize", body={"model": MODEL}),
    Request(
        name="tokenize for a model that is not served",
        path="/tokenize",
        body={"model": "other", "prompt": "x"},
    ),
    Request(name="detokenize text", path="/detokenize", body={"model": MODEL, "tokens": "x"}),
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
    completion("a model's name that is a number", model=7),
    completion("further prompts that are empty", prompt=[[]]),
    completion("numbers and words in a prompt", prompt=[10, "fox"]),
    completion("a token below zero", prompt=[-1]),
    completion("a token beyond the vocabulary", prompt=[99999]),
    completion("token ids beyond the context", prompt=[10] * 600),
    completion("a prompt of the whole context", prompt=[10] * CONTEXT, max_tokens=1),
    completion(
        "a prompt that leaves room for one token", prompt=[10] * (CONTEXT - 1), max_tokens=1
    ),
    completion("a stream of a prompt longer than the context", prompt=LONG, stream=True),
    completion("a limit that is a fraction", max_tokens=1.5),
    completion("a limit as text", max_tokens="4"),
    completion("answers that are a word", n="two"),
    completion("heat that is a word", temperature="hot"),
    completion("a stream that is a word", stream="maybe"),
    completion("options of a stream that are a list", stream=True, stream_options=[]),
    completion("usage that is a word", stream=True, stream_options={"include_usage": "maybe"}),
    completion("an unknown option of a stream", stream=True, stream_options={"no_such": True}),
    completion("top_p of zero", top_p=0),
    completion("top_k below one", top_k=-2),
    completion("min_p above one", min_p=1.5),
    completion("penalty of presence beyond two", presence_penalty=3),
    completion("penalty of frequency beyond two", frequency_penalty=-3),
    completion("penalty of repetition of zero", repetition_penalty=0),
    completion("probabilities below none", logprobs=-2),
    completion("more probabilities than it gives", logprobs=50),
    completion("probabilities of the prompt in a stream", prompt_logprobs=1, stream=True),
    completion("fewest tokens below none", min_tokens=-1),
    completion("an empty end", stop=""),
    completion("ends that are numbers", stop=[7]),
    completion("ends of words", stop=["no such word", "another"]),
    completion("a bias to a token beyond the vocabulary", logit_bias={"99999": 1}),
    completion("a bias that is a word", logit_bias={"1": "much"}),
    completion("allowed tokens that are none", allowed_token_ids=[]),
    completion("a seed that is a word", seed="first"),
    completion("a priority without priorities", priority=1),
    completion("a suffix", suffix="end"),
    completion("an unknown format", response_format={"type": "no_such"}),
    completion("a format without its schema", response_format={"type": "json_schema"}),
    completion(
        "KV parameters of an engine without KV transfer",
        kv_transfer_params={"do_remote_decode": True},
    ),
    completion("without the key", key=False),
    completion("a key without its scheme", key=False, headers={"Authorization": KEY}),
    completion("a key of another scheme", key=False, headers={"Authorization": f"Basic {KEY}"}),
    completion("a key in small letters", key=False, headers={"authorization": f"bearer {KEY}"}),
    completion("a key in another header", key=False, headers={"X-Api-Key": KEY}),
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
    chat(
        "a stream with usage at every token",
        stream=True,
        stream_options={**USAGE, "continuous_usage_stats": True},
    ),
    chat("usage without a stream", stream_options=USAGE),
    chat("messages that are text", messages=PROMPT),
    chat("a message that is a number", messages=[7]),
    chat("a role that is a number", messages=[{"role": 7, "content": PROMPT}]),
    chat("a message without content", messages=[{"role": "user"}]),
    chat("content that is a number", messages=[{"role": "user", "content": 7}]),
    chat("more tokens than the context", max_tokens=10 * CONTEXT),
    chat("no tokens", max_tokens=0),
    chat("a limit that is a word", max_tokens="many"),
    chat("temperature below zero", temperature=-1),
    chat("no answers", n=0),
    chat("no model named", model=None),
    chat("no tools", tools=[]),
    chat("tools that are a map", tools={}),
    chat("a tool without a name", tools=[{"type": "function", "function": {}}], tool_choice="none"),
    chat("a tool that must be used, without tools", tool_choice="required"),
    chat("a tool that must be used, without a parser", tools=[TOOL], tool_choice="required"),
    chat("a tool by a name that there is not", tools=[TOOL], tool_choice=NAMED),
    chat("an unknown choice of tools", tools=[TOOL], tool_choice="maybe"),
    chat("probabilities that were not asked for", top_logprobs=1),
    chat("more probabilities than it gives", logprobs=True, top_logprobs=50),
    chat(
        "an opened and a continued answer", continue_final_message=True, add_generation_prompt=True
    ),
    chat("an unknown format", response_format={"type": "no_such"}),
    chat("settings of the template that are a list", chat_template_kwargs=[]),
    chat("a template of its own", chat_template="{{ messages[0]['content'] }}"),
    chat("KV parameters that are a list", kv_transfer_params=[]),
    Request(
        name="chat: no JSON", path=CHAT, body="{", headers={"Content-Type": "application/json"}
    ),
    Request(name="chat: a list", path=CHAT, body=[1]),
    Request(name="chat: without the key", path=CHAT, body={}, key=False),
)
