"""The environment variables that decide whether and how vLLM starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from .failures import Failed, invalid

TRUE_WORDS = ("1", "true", "True", "TRUE", "on", "yes")


class Addresses(NamedTuple):
    """Where this process says it can be reached."""

    host: str
    side_channel_host: str
    side_channel_port: int
    bootstrap_port: int


def check_names(environ: dict[str, str], known: frozenset[str], *, is_strict: bool) -> list[str]:
    """Return vLLM's warnings about unknown ``VLLM_*`` variables.

    Raises:
        Failed: ``--fail-on-environ-validation`` makes the first of them an error.
    """
    warnings = []
    for name in environ:
        if name.startswith("VLLM_") and name not in known:
            message = f"Unknown vLLM environment variable detected: {name}"
            if is_strict:
                raise Failed("ValueError", message)
            warnings.append(message)
    return warnings


def check_internal_port(environ: dict[str, str], *, has_ranks: bool) -> None:
    """Check ``VLLM_PORT``, which a Kubernetes service named ``vllm`` sets to a URI.

    Data-parallel ranks draw ports when they are configured; what has no ranks draws the first in its core.

    Raises:
        Failed: vLLM's own ValueError.
    """
    text = environ.get("VLLM_PORT")
    if text is None:
        return
    try:
        int(text)
    except ValueError:
        reason = "must be a valid integer"
        if "://" in text:
            reason = (
                "appears to be a URI. This may be caused by a Kubernetes service discovery issue,"
                "check the warning in: https://docs.vllm.ai/en/stable/serving/env_vars.html"
            )
        message = f"VLLM_PORT '{text}' {reason}"
        failure = invalid("ParallelConfig", message)
        raise (failure if has_ranks else Failed("ValueError", message, "EngineCore")) from None


def check_values(environ: dict[str, str], readers: dict[str, dict[str, Any]]) -> None:
    """Read every variable as vLLM's core does when it has started, whatever uses it.

    Args:
        environ: of the process.
        readers: by variable, its row in the release's catalogue.

    Raises:
        Failed: a value is no number, or none of the words that the variable may be.
    """
    for name, row in readers.items():
        text = environ.get(name)
        if text is None:
            continue
        if "choices" in row:
            _check_choices(name, text, row)
            continue
        try:
            int(text) if row["reads"] == "int" else float(text)
        except ValueError as error:
            raise Failed("ValueError", str(error), "EngineCore") from None


def _check_choices(name: str, text: str, row: dict[str, Any]) -> None:
    separator = row.get("separator")
    given = [each.strip() for each in text.split(separator)] if separator else [text]
    for word in given:
        is_there = word in row["choices"]
        if row.get("any_case"):
            is_there = word.lower() in [choice.lower() for choice in row["choices"]]
        if not is_there and (word or not separator):
            preposition = "in" if separator else "for"
            message = (
                f"Invalid value '{word}' {preposition} {name}. Valid options: {row['choices']}."
            )
            raise Failed("ValueError", message, "EngineCore")


def read_addresses(environ: dict[str, str], own_address: str) -> Addresses:
    """Return where the process binds and advertises its KV transfer.

    Raises:
        Failed: a port is no number: the engine's core reads every variable that vLLM knows, whatever the connector.
    """
    return Addresses(
        host=environ.get("VLLM_HOST_IP") or own_address,
        side_channel_host=environ.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"),
        side_channel_port=_integer(environ, "VLLM_NIXL_SIDE_CHANNEL_PORT", 5600),
        bootstrap_port=_integer(environ, "VLLM_MOONCAKE_BOOTSTRAP_PORT", 8998),
    )


def is_on(environ: dict[str, str], name: str, *, default: bool = False) -> bool:
    """Say whether a switch variable is on."""
    text = environ.get(name)
    return default if text is None else text in TRUE_WORDS


def _integer(environ: dict[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        message = f"invalid literal for int() with base 10: '{text}'"
        raise Failed("ValueError", message, "EngineCore") from None
