"""What a client gets to read: a message, whether it came whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.engines.command_line import as_map
from infra.engines.serving import events_of

_REASONING = ("reasoning", "reasoning_content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message.

    Args:
        content: the words beside the thought, "" without any.
        reasoning: the thought, where the engine tells it apart.
        calls: name and arguments (JSON's text) of each tool that is called.
        finish_reason: why it ended, None where the engine does not say.
        num_tokens: of all of it by the engine's own count, None without one.
        num_thoughts: pieces in which the thought came.
    """

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: str | None
    num_tokens: int | None
    num_thoughts: int


def read_said(answer: object) -> Said | None:
    """The first choice of an answer, the pieces of a stream joined; None where it has no message."""
    content, thoughts, calls = "", list[str](), dict[object, list[str]]()
    finish: str | None = None
    num_tokens: int | None = None
    has_message = False
    for event in events_of(answer):
        counted = as_map(event.get("usage")).get("completion_tokens")
        num_tokens = counted if isinstance(counted, int) else num_tokens
        choices = event.get("choices")
        choice = as_map(choices[0]) if isinstance(choices, list) and choices else {}
        part = choice.get("delta") if isinstance(answer, str) else choice.get("message")
        if not isinstance(part, Mapping):
            continue
        has_message = True
        content += _text(part.get("content"))
        thoughts += [text for key in _REASONING if (text := _text(part.get(key)))]
        _join(calls, part.get("tool_calls"))
        finish = _text(choice.get("finish_reason")) or finish
    if not has_message:
        return None
    return Said(
        content=content,
        reasoning="".join(thoughts),
        calls=tuple((name, arguments) for name, arguments in calls.values()),
        finish_reason=finish,
        num_tokens=num_tokens,
        num_thoughts=len(thoughts),
    )


def missing_from_stream(answer: object) -> str | None:
    """What is wrong with a stream whatever it says, None when nothing is."""
    text = answer if isinstance(answer, str) else ""
    events = [line for line in text.splitlines() if line.startswith("data: {")]
    if not events:
        return "no event came"
    if any(event.startswith('data: {"error"') for event in events):
        return f"the stream holds an error: {events[-1][:200]}"
    said = read_said(answer)
    if said is None or not (said.content or said.reasoning or said.calls):
        return "the stream holds no word"
    return None if "data: [DONE]" in text else "the stream ends without [DONE]"


def _join(calls: dict[object, list[str]], rows: object) -> None:
    """Add the calls of one piece; a stream tells the name first, and the arguments in parts."""
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        told = as_map(row)
        function = as_map(told.get("function"))
        call = calls.setdefault(told.get("index", place), ["", ""])
        call[0] += _text(function.get("name"))
        call[1] += _text(function.get("arguments"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
