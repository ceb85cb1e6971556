"""Numbers and JSON that strangers wrote: read within limits, so that nothing is too long or too deep to go on with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

# Nothing that this project reads counts further; Python itself stops at 4,300 digits, and a float at 308.
MAX_DIGITS = 18
# Values of engines nest half a dozen deep; the interpreter's own stack ends at several hundred.
MAX_DEPTH = 64
# Each takes some hundred bytes once it is read; a plan of ten thousand processes has half as many.
MAX_VALUES = 4_000_000


def is_whole_number(text: str) -> bool:
    """Whether a text is nothing but ASCII digits, at most `MAX_DIGITS` of them: `int` then reads it."""
    return text.isdecimal() and text.isascii() and len(text) <= MAX_DIGITS


def read_whole(text: str) -> int:
    """The whole number of a text, as `int` reads it.

    Raises:
        ValueError: it is none, or longer than anything counts.
    """
    if len(text) > MAX_DIGITS + 2 and len(text.strip().lstrip("+-")) > MAX_DIGITS:
        message = f"a number of more than {MAX_DIGITS} digits: {text[:MAX_DIGITS]}…"
        raise ValueError(message)
    return int(text)


def read_real(text: str) -> float:
    """The number of a text, as `float` reads it.

    Raises:
        ValueError: it is none, or not finite.
    """
    number = float(text)
    if not math.isfinite(number):
        message = f"{text} is no finite number"
        raise ValueError(message)
    return number


def read_json(text: str | bytes) -> object:
    """The document of a text.

    Raises:
        ValueError: it is no JSON, nests more than `MAX_DEPTH` deep, or holds a number that nothing can count with.
    """
    separators = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    if sum(map(text.count, separators)) > MAX_VALUES:  # type: ignore[arg-type]  # one of both
        message = f"it holds more than {MAX_VALUES} values"
        raise ValueError(message)
    try:
        document: object = json.loads(
            text, parse_int=read_whole, parse_float=read_real, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise _TOO_DEEP from None
    if _is_deeper(document):
        raise _TOO_DEEP
    return document


_TOO_DEEP = ValueError(f"it nests more than {MAX_DEPTH} deep")


def _refuse_constant(name: str) -> float:
    message = f"{name} is no number of JSON"
    raise ValueError(message)


def _is_deeper(document: object) -> bool:
    """Whether a document nests more than `MAX_DEPTH` deep, looked at level by level."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
