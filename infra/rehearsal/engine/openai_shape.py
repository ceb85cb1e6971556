"""Shapes what a rank generated into the OpenAI interface's documents and event streams."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from .http_server import Response, json_response
from .openai_api import END_OF_THOUGHT, Dialect, Job
from .settings import Settings

SSE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
# vLLM's names its release and how it is laid out; nothing of ours reads it.
FINGERPRINT = "simulated"

BROKEN = {"message": "Internal server error", "type": "InternalServerError", "code": 500}

Piece = tuple[dict[str, Any], dict[str, Any]]


def shape(settings: Settings, dialect: Dialect, job: Job, result: dict[str, Any]) -> Response:
    """Return the HTTP answer to a finished job."""
    if job.is_stream:
        return Response(200, content_type=SSE, chunks=_stream(settings, dialect, job, result))
    usage = _usage(job, len(result["tokens"]))
    if dialect.wraps_errors:
        usage["prompt_tokens_details"] = None
    choice: dict[str, Any] = {
        "index": 0,
        "logprobs": None,
        "finish_reason": result["finish_reason"],
    }
    if job.is_chat:
        message, is_call = _message(settings, dialect, job, result["tokens"])
        choice["message"] = message
        if is_call:
            choice["finish_reason"] = "tool_calls"
    else:
        choice["text"] = "".join(result["tokens"])
    choice["stop_reason" if dialect.wraps_errors else "matched_stop"] = None
    choices = [{**choice, "index": index} for index in range(job.num_choices)]
    document = {**_head(job, is_chunk=False), "choices": choices, "usage": usage}
    if dialect.wraps_errors:
        _add_unused(document, is_chat=job.is_chat)
    if dialect.has_kv_params:
        document["kv_transfer_params"] = result["kv_transfer_params"]
    return json_response(document)


def _add_unused(document: dict[str, Any], *, is_chat: bool) -> None:
    """Add what vLLM 0.22.1 always names and fills in only when it is asked to."""
    common = ("prompt_token_ids", "prompt_logprobs")
    document.update(service_tier=None, system_fingerprint=FINGERPRINT)
    for choice in document["choices"]:
        choice.update(token_ids=None, routed_experts=None)
        if is_chat:
            names = ("refusal", "annotations", "audio", "function_call")
            choice["message"] = {**choice["message"], **dict.fromkeys(names)}
        else:
            choice.update(dict.fromkeys(common))
    if is_chat:
        document.update(dict.fromkeys((*common, "prompt_text")))


def _parts(settings: Settings, job: Job, tokens: list[str]) -> list[tuple[str, str]]:
    """Return (field, text) of each token: ``reasoning``, ``content`` or ``call``."""
    final = "call" if job.tool is not None else "content"
    if not job.is_chat or END_OF_THOUGHT not in job.tokens:
        return [(final, token) for token in tokens]
    end = job.tokens.index(END_OF_THOUGHT)
    thought, rest = tokens[:end], tokens[end + 1 :]
    if settings.features.reasoning_parser is not None:
        return [*(("reasoning", x) for x in thought), *((final, x) for x in rest)]
    marker = tokens[end : end + 1]
    return [*(("content", x) for x in [*thought, *marker]), *((final, x) for x in rest)]


def _message(
    settings: Settings, dialect: Dialect, job: Job, tokens: list[str]
) -> tuple[dict[str, Any], bool]:
    parts = _parts(settings, job, tokens)
    texts = {name: "".join(text for field, text in parts if field == name) for name, _ in parts}
    is_call = job.tool is not None and len(tokens) == len(job.tokens)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": texts.get("content") or None,
        dialect.reasoning_field: texts.get("reasoning"),
        "tool_calls": [_call(job, texts.get("call", ""))] if is_call else [],
    }
    if not dialect.wraps_errors and not is_call:
        message["tool_calls"] = None
    return message, is_call


def _call(job: Job, arguments: str) -> dict[str, Any]:
    return {
        "id": f"functions.{job.tool}:0",
        "type": "function",
        "function": {"name": job.tool, "arguments": arguments},
    }


def _usage(job: Job, num_completion: int) -> dict[str, Any]:
    """Return the counts over all choices; `num_completion` is that of one."""
    completion = num_completion * job.num_choices
    return {
        "prompt_tokens": job.num_prompt_tokens,
        "total_tokens": job.num_prompt_tokens + completion,
        "completion_tokens": completion,
    }


def _head(job: Job, *, is_chunk: bool) -> dict[str, Any]:
    noun = (
        ("chat.completion.chunk" if is_chunk else "chat.completion")
        if job.is_chat
        else "text_completion"
    )
    return {"id": job.identity, "object": noun, "created": int(time.time()), "model": job.model}


async def _stream(
    settings: Settings, dialect: Dialect, job: Job, result: dict[str, Any]
) -> AsyncIterator[bytes]:
    if "error" in result:
        if not dialect.wraps_errors:
            yield _event({"error": dict(BROKEN)})
        elif job.is_chat:  # vLLM 0.22.1 ends the stream without a word of the error, recorded
            opening, more = next(
                _chat_choices(settings, dialect, job, {"tokens": [], "finish_reason": None})
            )
            yield _event(
                {**_head(job, is_chunk=True), "choices": [{"index": 0, **opening}], **more}
            )
        yield DONE
        return
    choices = (_chat_choices if job.is_chat else _text_choices)(settings, dialect, job, result)
    head = _head(job, is_chunk=True)
    mark = {"system_fingerprint": FINGERPRINT} if dialect.wraps_errors else {}
    counted = 0
    for choice, more in choices:
        document = {**head, "choices": [{"index": 0, **choice}], **more}
        counted += "delta" not in choice or bool(choice["delta"].get("content"))
        if job.counts_every_chunk:
            document["usage"] = _usage(job, counted)
        if choice["finish_reason"] is not None and not job.has_usage_chunk:
            document.update(mark)
        yield _event(document)
    if job.has_usage_chunk:
        usage = _usage(job, len(result["tokens"]))
        yield _event({**head, "choices": [], "usage": usage, **mark})
    yield DONE


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _chat_choices(
    settings: Settings, dialect: Dialect, job: Job, result: dict[str, Any]
) -> Iterator[Piece]:
    """Yield each chunk's choice, and what stands beside its choices."""
    is_vllm = dialect.wraps_errors
    token: dict[str, Any] = {"token_ids": None} if is_vllm else {}
    open_end = {"logprobs": None, "finish_reason": None}
    first: dict[str, Any] = {"role": "assistant", "content": ""}
    yield (
        {"delta": first, **open_end},
        ({"prompt_token_ids": None, "prompt_text": None} if is_vllm else {}),
    )
    deltas: list[dict[str, Any]] = []
    calls = ""
    for field, text in _parts(settings, job, result["tokens"]):
        if field == "call":
            calls += text
        else:
            deltas.append({dialect.reasoning_field if field == "reasoning" else "content": text})
    finish, last = result["finish_reason"], {}
    if job.tool is not None and len(result["tokens"]) == len(job.tokens):
        finish, last = "tool_calls", {"tool_calls": [{"index": 0, **_call(job, calls)}]}
    elif is_vllm and finish == "length" and deltas:
        last = deltas.pop()  # the token that reaches the limit comes with the reason
    for delta in deltas:
        yield {"delta": delta, **open_end, **token}, {}
    end = {"logprobs": None, "finish_reason": finish, "stop_reason": None}
    yield {"delta": last, **end, **token}, {}


def _text_choices(
    _settings: Settings, dialect: Dialect, _job: Job, result: dict[str, Any]
) -> Iterator[Piece]:
    """Yield each chunk's choice, and what stands beside its choices."""
    ids: dict[str, Any] = (
        {"prompt_token_ids": None, "token_ids": None} if dialect.wraps_errors else {}
    )
    last = len(result["tokens"]) - 1
    for index, text in enumerate(result["tokens"]):
        finish = result["finish_reason"] if index == last else None
        yield (
            {"text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None, **ids},
            {},
        )
