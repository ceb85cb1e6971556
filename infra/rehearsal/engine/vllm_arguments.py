"""vLLM's own treatment of its arguments before argparse sees them."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from typing import Any

from .command_line import human_readable_int
from .failures import Failed

OPTIMIZATION_LEVELS = ("0", "1", "2", "3")


class Rewritten:
    """The arguments as argparse gets them, and what vLLM warned about."""

    def __init__(self, argv: list[str], warnings: list[str]) -> None:
        self.argv = argv
        self.warnings = warnings


def rewrite(argv: list[str], *, has_number_suffixes: bool) -> Rewritten:
    """Normalise names, gather dotted keys into JSON, and report what was given twice.

    Args:
        argv: the arguments after ``vllm serve``.
        has_number_suffixes: dotted values may end in ``k`` … ``T`` (from 0.20.0).

    Raises:
        Failed: vLLM's own ValueError about a missing model.
    """
    words = ["serve", *argv]
    warnings: list[str] = []
    words = _model_first(words, warnings)
    words = _normalise(words)
    words, duplicates = _gather_dotted(words, has_number_suffixes=has_number_suffixes)
    if duplicates:
        warnings.append(f"Found duplicate keys {', '.join(duplicates)}")
    return Rewritten(words[1:], warnings)


def _model_first(words: list[str], warnings: list[str]) -> list[str]:
    for index, word in enumerate(words):
        if re.match(r"^--model(=.+|$)", word):
            warnings.append(
                "With `vllm serve`, you should provide the model as a positional argument or in a "
                "config file instead of via the `--model` option. "
                "The `--model` option will be removed in a future version."
            )
            is_joined = word != "--model"
            model = word[len("--model=") :] if is_joined else words[index + 1]
            rest = words[index + (1 if is_joined else 2) :]
            return ["serve", model, *words[1:index], *rest]
    has_config = any(re.match(r"^--config(=.+|$)", word) for word in words)
    has_name = any(re.match(r"^--served[-_]model[-_]name(=.+|$)", word) for word in words)
    if len(words) > 1 and words[1].startswith("-") and has_name and not has_config:
        raise Failed(
            "ValueError",
            "`model` should be provided as the first positional argument when "
            "using `vllm serve`. i.e. `vllm serve <model> --<arg> <value>`.",
            process="",
        )
    return words


def _normalise(words: list[str]) -> list[str]:
    result: list[str] = []
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, tail = name.partition(".")
            result.append(head.replace("_", "-") + dot + tail + equals + value)
        elif word.startswith("-O") and word != "-O":
            result += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif (
            word == "-O"
            and words[index + 1 : index + 2]
            and words[index + 1] in OPTIMIZATION_LEVELS
        ):
            result.append("--optimization-level")
        else:
            result.append(word)
    return result


def _gather_dotted(words: list[str], *, has_number_suffixes: bool) -> tuple[list[str], list[str]]:
    kept: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    duplicates: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if word.startswith("-") and "." in name:
            if not equals:
                if index >= len(words):
                    raise Failed("IndexError", "list index out of range", process="")
                value = words[index]
                index += 1
            if name.endswith("+"):
                name, value = name[:-1], json.dumps(value.split(","))
            key, *path = name.split(".")
            parsed = _dotted_value(value, has_number_suffixes=has_number_suffixes)
            duplicates += _merge(gathered.setdefault(key, {}), path, parsed, key)
            continue
        if word.startswith("--") and "." not in word:
            if name in seen and name not in duplicates:
                duplicates.append(name)
            seen.add(name)
        kept.append(word)
    for key, values in gathered.items():
        kept += [key, json.dumps(values)]
    return kept, duplicates


def _dotted_value(text: str, *, has_number_suffixes: bool) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    if has_number_suffixes:
        try:
            return human_readable_int(text)
        except (ValueError, ArgumentTypeError):
            pass
    return text


def _merge(target: dict[str, Any], path: list[str], value: Any, name: str) -> list[str]:
    """Put a value at its path; return the dotted names that were overwritten."""
    head, *rest = path
    full = f"{name}.{head}"
    if rest:
        inner = target.get(head)
        if not isinstance(inner, dict):
            overwritten = [full] if head in target else []
            target[head] = inner = {}
            return overwritten + _merge(inner, rest, value, full)
        return _merge(inner, rest, value, full)
    current = target.get(head)
    if isinstance(current, list) and isinstance(value, list):
        current += value
        return []
    if isinstance(current, dict) and isinstance(value, dict):
        return [x for key, item in value.items() for x in _merge(current, [key], item, full)]
    was_there = head in target
    target[head] = value
    return [full] if was_there else []
