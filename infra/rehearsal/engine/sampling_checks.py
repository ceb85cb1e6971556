"""What vLLM refuses of a request's sampling parameters (sampling_params.py of vllm 0.22.1, in its order)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .openai_api import Rejected

MOST_PENALTY = 2
# Name, what it may be, and what is said of the rest; `!`: the parameter is named beside it, too.
RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("n", lambda x: x >= 1, "n must be at least 1, got {int}."),
    (
        "presence_penalty",
        lambda x: abs(x) <= MOST_PENALTY,
        "presence_penalty must be in [-2, 2], got {float}.",
    ),
    (
        "frequency_penalty",
        lambda x: abs(x) <= MOST_PENALTY,
        "frequency_penalty must be in [-2, 2], got {float}.",
    ),
    (
        "repetition_penalty",
        lambda x: x > 0,
        "repetition_penalty must be greater than zero, got {float}.",
    ),
    ("temperature", lambda x: x >= 0, "!temperature must be non-negative, got {float}."),
    ("top_p", lambda x: 0 < x <= 1, "!top_p must be in (0, 1], got {float}."),
    ("top_k", lambda x: x >= -1, "top_k must be 0 (disable), or at least 1, got {int}."),
    ("min_p", lambda x: 0 <= x <= 1, "min_p must be in [0, 1], got {float}."),
    ("max_tokens", lambda x: x >= 1, "!max_tokens must be at least 1, got {int}."),
    ("min_tokens", lambda x: x >= 0, "min_tokens must be greater than or equal to 0, got {int}."),
)


def check_sampling(body: dict[str, Any]) -> None:
    """Check the values of sampling parameters.

    Raises:
        Rejected: one is out of its range.
    """
    for name, fits, said in RANGES:
        value = body.get(name)
        if name == "max_tokens" and body.get("max_completion_tokens") is not None:
            value = body["max_completion_tokens"]
        if value is not None and not fits(float(value)):
            raise _out_of_range(name, said, float(value))
    _check_lengths(body)
    _check_ends(body)
    heat, count = body.get("temperature"), int(body.get("n") or 1)
    if heat is not None and float(heat) == 0 and count > 1:
        raise _bad(f"n must be 1 when using greedy sampling, got {count}.")


def _out_of_range(name: str, said: str, value: float) -> Rejected:
    shown = {"int": int(value), "float": value}
    text = said.lstrip("!").format(**shown)
    if not said.startswith("!"):
        return _bad(text)
    printed = shown["int"] if "{int}" in said else value
    return Rejected(400, "BadRequestError", f"{text} (parameter={name}, value={printed})", name)


def _check_lengths(body: dict[str, Any]) -> None:
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    least = int(body.get("min_tokens") or 0)
    if most is not None and least > int(most):
        raise _bad(f"min_tokens must be less than or equal to max_tokens={int(most)}, got {least}.")


def _check_ends(body: dict[str, Any]) -> None:
    ends = body.get("stop")
    if "" in ([ends] if isinstance(ends, str) else ends or []):
        raise _bad("stop cannot contain an empty string.")


def _bad(text: str) -> Rejected:
    return Rejected(400, "BadRequestError", text)
