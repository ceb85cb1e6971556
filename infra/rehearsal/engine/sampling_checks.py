"""What vLLM refuses of a request's sampling parameters (sampling_params.py of vllm 0.22.1, in its order)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .openai_api import Rejected

MOST_PENALTY = 2
MOST_PROBABILITIES = 20  # --max-logprobs, which nothing of ours sets
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


def check_sampling(body: dict[str, Any], vocabulary: int) -> None:
    """Check the values of sampling parameters.

    Args:
        body: of the request.
        vocabulary: the model's number of tokens, 0 where it is not known.

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
    _check_probabilities(body)
    _check_token_ids(body, vocabulary)


def _out_of_range(name: str, said: str, value: float) -> Rejected:
    shown = {"int": int(value), "float": value}
    text = said.lstrip("!").format(**shown)
    if not said.startswith("!"):
        return _bad(text)
    printed = shown["int"] if "{int}" in said else value
    return _named(text, name, printed)


def _check_lengths(body: dict[str, Any]) -> None:
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    least = int(body.get("min_tokens") or 0)
    if most is not None and least > int(most):
        raise _bad(f"min_tokens must be less than or equal to max_tokens={int(most)}, got {least}.")


def _check_ends(body: dict[str, Any]) -> None:
    ends = body.get("stop")
    if "" in ([ends] if isinstance(ends, str) else ends or []):
        raise _bad("stop cannot contain an empty string.")


def _check_probabilities(body: dict[str, Any]) -> None:
    wanted = body.get("top_logprobs") if body.get("logprobs") is True else body.get("logprobs")
    if wanted is not None and int(wanted) > MOST_PROBABILITIES:
        raise _named(
            f"Requested sample logprobs of {wanted}, which is greater than max allowed: {MOST_PROBABILITIES}",
            "logprobs",
            wanted,
        )


def _check_token_ids(body: dict[str, Any], vocabulary: int) -> None:
    beyond = [int(x) for x in body.get("logit_bias") or {} if vocabulary and int(x) >= vocabulary]
    if beyond:
        reason = f"token_id(s) {beyond} in logit_bias contain out-of-vocab token ids. Vocabulary size: {vocabulary}"
        raise _named(reason, "logit_bias", beyond)
    if body.get("allowed_token_ids") == []:
        raise _named("allowed_token_ids is not None and empty!", "allowed_token_ids", [])


def _named(text: str, name: str, value: Any) -> Rejected:
    return Rejected(400, "BadRequestError", f"{text} (parameter={name}, value={value})", name)


def _bad(text: str) -> Rejected:
    return Rejected(400, "BadRequestError", text)
