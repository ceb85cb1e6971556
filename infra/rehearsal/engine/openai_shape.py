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


def shape(settings: Settings, dialect: Dialect, job: Job, result: dict[str, Any]) -> Response:
    """Return the HTTP answer to a finished job."""
    if job.is_stream:
        return Response(200, content_type=SSE, chunks=_stream(settings, dialect, job, result))
    usage = _usage(job, len(result["tokens"]))
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
    document = {**_head(job, is_chunk=False), "choices": [choice], "usage": usage}
    if dialect.has_kv_params:
        document["kv_transfer_params"] = result["kv_transfer_params"]
    return json_response(document)


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
    return {
        "prompt_tokens": job.num_prompt_tokens,
        "total_tokens": job.num_prompt_tokens + num_completion,
        "completion_tokens": num_completion,
        "prompt_tokens_details": None,
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
        yield b'data: {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}\n\n'
        yield DONE
        return
    choices = (_chat_choices if job.is_chat else _text_choices)(settings, dialect, job, result)
    head = _head(job, is_chunk=True)
    for choice in choices:
        yield _event({**head, "choices": [{"index": 0, **choice}]})
    if job.has_usage_chunk:
        yield _event({**head, "choices": [], "usage": _usage(job, len(result["tokens"]))})
    yield DONE


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _chat_choices(
    settings: Settings, dialect: Dialect, job: Job, result: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    open_end = {"logprobs": None, "finish_reason": None}
    yield {"delta": {"role": "assistant", "content": ""}, **open_end}
    calls = ""
    for field, text in _parts(settings, job, result["tokens"]):
        if field == "call":
            calls += text
        else:
            name = dialect.reasoning_field if field == "reasoning" else "content"
            yield {"delta": {name: text}, **open_end}
    finish, delta = result["finish_reason"], {}
    if job.tool is not None and len(result["tokens"]) == len(job.tokens):
        finish, delta = "tool_calls", {"tool_calls": [{"index": 0, **_call(job, calls)}]}
    yield {"delta": delta, "logprobs": None, "finish_reason": finish, "stop_reason": None}


def _text_choices(
    _settings: Settings, _dialect: Dialect, _job: Job, result: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    last = len(result["tokens"]) - 1
    for index, text in enumerate(result["tokens"]):
        finish = result["finish_reason"] if index == last else None
        yield {"text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
