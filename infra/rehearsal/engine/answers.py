"""The text that a simulated model answers with: the same prompt always gets the same answer."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

TOKEN = re.compile(r"\s*(?:\w+|[^\w\s])")
SUM = re.compile(r"(\d+)\s*(\+|-|\*|x|×|plus|minus|times)\s*(\d+)", re.IGNORECASE)
THOUGHT = "The user asks; I answer."
FILLER = " and so on"
# so many tokens that were there before are the beginning of a repetition
ECHO = 6


class Answer(NamedTuple):
    """What the model says, in tokens."""

    thought: tuple[str, ...]
    content: tuple[str, ...]


def tokens_of(text: str) -> tuple[str, ...]:
    """Split text into tokens; joining them gives the text back, but for trailing space."""
    return tuple(TOKEN.findall(text))


def count_tokens(prompt: Any) -> int:
    """Return the number of tokens of a prompt: text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return max(1, len(tokens_of(prompt)))
    if isinstance(prompt, list) and prompt and all(isinstance(x, int) for x in prompt):
        return len(prompt)
    if isinstance(prompt, list):
        return sum(count_tokens(x) for x in prompt)
    return 1


def answer(prompt: str, *, is_chat: bool, picture: str | None, thinks: bool) -> Answer:
    """Return the answer to a prompt; arithmetic on two numbers is right.

    Args:
        prompt: all of its text.
        is_chat: whether the model is asked, rather than told to go on.
        picture: the colour of a picture in the prompt, "" for one of none that is known, None without one.
        thinks: whether a thought comes first.
    """
    found = SUM.findall(prompt)
    again = "" if is_chat else _continued(tokens_of(prompt))
    if found:
        left, sign, right = found[-1]
        result = _calculate(int(left), sign.lower(), int(right))
        text = f"The answer is {result}." if is_chat else f" {result}"
    elif picture is not None:
        text = f"The image shows a simulated {picture or 'picture'}."
    elif again:
        text = again
    else:
        text = (
            "This is the answer of a simulated model."
            if is_chat
            else " and this is a simulated model."
        )
    return Answer(thought=tokens_of(THOUGHT) if thinks else (), content=tokens_of(text))


def extend(tokens: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Lengthen an answer to at least ``count`` tokens."""
    filler = tokens_of(FILLER)
    result = list(tokens)
    while len(result) < count:
        result.append(filler[len(result) % len(filler)])
    return tuple(result)


def tool_arguments(tool: dict[str, Any], prompt: str, picture: str | None) -> str:
    """Return arguments that satisfy a tool's schema, as JSON text; text is a picture's colour where there is one."""
    schema = tool.get("function", {}).get("parameters") or {}
    names = schema.get("required") or list(schema.get("properties", {}))
    properties = schema.get("properties", {})
    return json.dumps({name: _example(properties.get(name, {}), prompt, picture) for name in names})


def _continued(tokens: tuple[str, ...]) -> str:
    """What came after the end of a prompt where it stands earlier in it, "" where it is new: models go on so."""
    end = tokens[-ECHO:]
    for start in range(len(tokens) - len(end) - 1, -1, -1) if len(end) == ECHO else ():
        if tokens[start : start + ECHO] == end:
            return "".join(tokens[start + ECHO : len(tokens) - ECHO])
    return ""


def _example(schema: dict[str, Any], prompt: str, picture: str | None) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    numbers = re.findall(r"\d+", prompt)
    simple = {
        "integer": int(numbers[0]) if numbers else 1,
        "number": float(numbers[0]) if numbers else 1.0,
        "boolean": True,
        "array": [],
        "object": {},
    }
    names = re.findall(r"(?<=\s)[A-Z][a-z]+", prompt)
    return simple.get(str(schema.get("type")), picture or (names[-1] if names else "text"))


def _calculate(left: int, sign: str, right: int) -> int:
    if sign in ("+", "plus"):
        return left + right
    return left - right if sign in ("-", "minus") else left * right
