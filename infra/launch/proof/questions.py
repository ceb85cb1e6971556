"""What a stack says it can do, as requests of a client, and what their answers must hold."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping

from infra.engines.serving import CHAT, answer_text
from infra.launch.proof.rank import Question

# What shows by its first words ends there: a model that finds no end would talk on, at whatever its host's speed is.
FEW_TOKENS = 32
MAX_TOKENS: Mapping[str, int] = {"tools": 256, "reasoning": 256}
PNG_SIDE = 64
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def question_for(capability: str, model: str) -> Question:
    """The request that shows a capability.

    Args:
        capability: one of the plan's: chat, stream, vision, tools, reasoning.
        model: the served name.
    """
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": _WORDS.get(capability, _SUM)}],
        "max_tokens": MAX_TOKENS.get(capability, FEW_TOKENS),
        "temperature": 0,
    }
    if capability == "stream":
        body.update(stream=True, stream_options={"include_usage": True})
    elif capability == "vision":
        parts = [
            {"type": "text", "text": "What colour is this picture?"},
            {"type": "image_url", "image_url": {"url": picture_url()}},
        ]
        body["messages"] = [{"role": "user", "content": parts}]
    elif capability == "tools":
        body.update(tools=[_TOOL], tool_choice="auto")
    return Question(name=capability, path=CHAT, body=body)


def missing_from(capability: str, answer: object) -> str | None:
    """What an answer lacks to show a capability, None when it shows it.

    Args:
        capability: what was asked for.
        answer: the body, a map or a stream's text.
    """
    if capability == "stream":
        return _missing_from_stream(answer)
    message = _message(answer)
    if message is None:
        return "the answer has no message"
    return _JUDGES[capability](message)


def picture_url() -> str:
    """A red square as a data URL, made here so that no file and no network is needed."""
    row = b"\0" + b"\xd0\x20\x20" * PNG_SIDE
    header = struct.pack(">IIBBBBB", PNG_SIDE, PNG_SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(row * PNG_SIDE)), (b"IEND", b""))
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


# Long enough for one KV block of every backend, as a prefill rank transfers nothing of a shorter one.
_PADDING = "Answer in one short sentence. " * 30
_SUM = f"{_PADDING}What is 17 + 25?"
_WORDS: Mapping[str, str] = {
    "tools": f"{_PADDING}What is the weather in Paris? Call the tool to find out."
}


def _has_text(message: Mapping[str, object]) -> str | None:
    has_any = any(message.get(key) for key in ("content", "reasoning", "reasoning_content"))
    return None if has_any else "the message is empty"


def _has_call(message: Mapping[str, object]) -> str | None:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return "the message calls no tool"
    function = calls[0].get("function") if isinstance(calls[0], Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return None if name == "get_weather" else f"the message calls {name!r}, not get_weather"


def _has_reasoning(message: Mapping[str, object]) -> str | None:
    if message.get("reasoning") or message.get("reasoning_content"):
        return None
    return "the message has no reasoning beside its content"


_JUDGES: Mapping[str, Callable[[Mapping[str, object]], str | None]] = {
    "chat": _has_text,
    "vision": _has_text,
    "tools": _has_call,
    "reasoning": _has_reasoning,
}


def _missing_from_stream(answer: object) -> str | None:
    text = answer if isinstance(answer, str) else ""
    events = [line for line in text.splitlines() if line.startswith("data: {")]
    if not events:
        return "no event came"
    if any(event.startswith('data: {"error"') for event in events):
        return f"the stream holds an error: {events[-1][:200]}"
    if not answer_text(text):
        return "the stream holds no word"
    return None if "data: [DONE]" in text else "the stream ends without [DONE]"


def _message(answer: object) -> Mapping[str, object] | None:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    return message if isinstance(message, Mapping) else None


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum
