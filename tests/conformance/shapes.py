"""What is the same in two answers that are not equal: times, identities and a model's words are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# A request's own id, where a case gives one, is shown.
GIVEN_ID = "given-by-the-case"
_TEXTS = ("text", "content", "reasoning", "reasoning_content")
_HIDDEN = {
    "created": "<time>",
    "root": "<model>",
    "remote_engine_id": "<engine>",
    "remote_block_ids": "<blocks>",
    "remote_port": "<port>",
    "system_fingerprint": "<fingerprint>",
}
_OUTPUT = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"^\(\w+(?: pid=\d+)?\) ", re.MULTILINE), ""),
    (re.compile(r"/\S*/checkpoint-(?:tiny|copy)\b"), "<model>"),
    (re.compile(r"/\S*/(?=checkpoint-)"), "<folder>/"),
    (re.compile(r'File "/\S*/(?=vllm/)'), 'File "<packages>/'),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"\bport[= ](\d{4,5})\b"), "port <port>"),
    (re.compile(r"(127\.0\.0\.\d+|0\.0\.0\.0|localhost)(:|', )\d{4,5}"), r"\1\2<port>"),
    (re.compile(r"input_value=.*?, input_type="), "input_value=<value>, input_type="),
    (re.compile(r"errors\.pydantic\.dev/[\d.]+/"), "errors.pydantic.dev/<version>/"),
)
_MORE_LINES = 4
_LOGGED = re.compile(r"(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d |\[|nanobind|\S+: \w*Warning: ")
_ERROR = re.compile(
    r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|vllm(?: serve)?: error: .*|usage: .*)$"
)


def shape_of(value: Any, key: str = "") -> Any:
    """A JSON value with everything replaced that differs between two runs of one engine."""
    if isinstance(value, dict):
        return {name: shape_of(item, name) for name, item in value.items()}
    if isinstance(value, list) and key not in _HIDDEN:
        return [shape_of(item, key) for item in value]
    if value is not None and key in _HIDDEN:
        return _HIDDEN[key]
    return _plain(value, key) if isinstance(value, str) else value


def _plain(text: str, key: str) -> str:
    """A text of an answer without what differs."""
    if key in ("id", "remote_request_id"):
        return _identity(text)
    if key in _TEXTS:
        return "<text>" if text else ""
    return normal_text(text)


def body_of(text: str, content_type: str) -> Any:
    """An answer's body as a shape: JSON, a stream's events, or text."""
    if content_type.startswith("text/event-stream"):
        return list(_events(text))
    try:
        return shape_of(json.loads(text))
    except ValueError:
        return normal_text(text)[:400]


def normal_text(text: str) -> str:
    """Output without colours, process ids, addresses and values that the test chose."""
    for pattern, plain in _OUTPUT:
        text = pattern.sub(plain, text)
    return text


def last_error(output: str) -> str:
    """The error that a program ended with: its last line that names one, and the lines that explain it."""
    lines = [line.rstrip() for line in normal_text(output).splitlines()]
    starts = [number for number, line in enumerate(lines) if _ERROR.match(line)]
    if not starts:
        return ""
    first = starts[-1]
    more = []
    for line in lines[first + 1 : first + 1 + _MORE_LINES]:
        if not line or line.lstrip().startswith(("File ", "For further")) or _LOGGED.match(line):
            break
        more.append(line.strip())
    return "\n".join([lines[first], *more])


def _events(text: str) -> Iterator[Any]:
    """The events of a stream in order; of equal shapes in a row one, so that a stream's length does not show."""
    last: Any = None
    for block in text.split("\n\n"):
        if not block:
            continue
        word, _, data = block.partition(": ")
        try:
            shape = {word: shape_of(json.loads(data))}
        except ValueError:
            shape = {word: data}
        if shape == last:
            continue
        last = shape
        yield shape


def _identity(value: str) -> str:
    if GIVEN_ID in value:
        return value
    prefix, dash, _ = value.partition("-")
    return f"{prefix}-…" if dash else "…"
