"""Checks a JSON value against the fields of a vLLM configuration class, as pydantic does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .failures import PYDANTIC_HELP

Classes = dict[str, dict[str, list[str]]]

GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
# pydantic goes through the fields of a class and then through what is none (config/kv_transfer.py 0.22.1).
FIELD_ORDER = {
    "KVTransferConfig": (
        "kv_connector", "engine_id", "kv_buffer_device", "kv_buffer_size", "kv_role", "kv_rank", "kv_parallel_size",
        "kv_ip", "kv_port", "kv_connector_extra_config", "kv_connector_module_path", "enable_permute_local_kv",
        "kv_load_failure_policy",
    ),
}  # fmt: skip
INTEGER_LISTS = ("cudagraph_capture_sizes",)
KV_ROLES = ("kv_producer", "kv_both", "kv_consumer")


class Problem(NamedTuple):
    """One line of a pydantic validation error."""

    place: str
    text: str
    kind: str
    value: Any


class UnknownGraphMode(Exception):
    """vLLM looks the mode up in an enumeration and lets the KeyError through."""


def validation_error(class_name: str, value: Any, classes: Classes) -> str | None:
    """Return pydantic's report on a value of a class, or None when it is valid.

    Raises:
        UnknownGraphMode: ``cudagraph_mode`` is none of the modes.
    """
    problems = _check_class(class_name, value, classes, "")
    if not problems:
        return _after(class_name, value)
    return _report(class_name, problems)


def json_error(class_name: str, text: str, error: ValueError) -> str:
    """Return pydantic's report on text that is no JSON."""
    reason, column = _json_reason(error), getattr(error, "colno", 1)
    if column > len(text.rstrip()):
        reason, column = "EOF while parsing a value", len(text.rstrip())
    return _report(
        class_name,
        [
            Problem(
                "",
                f"Invalid JSON: {reason} at line 1 column {column}",
                "json_invalid",
                text,
            )
        ],
    )


def _json_reason(error: ValueError) -> str:
    reason = getattr(error, "msg", str(error))
    return {
        "Expecting value": "expected value",
        "Expecting property name enclosed in double quotes": "key must be a string",
        "Extra data": "trailing characters",
    }.get(reason, reason)


def _report(class_name: str, problems: list[Problem]) -> str:
    noun = "validation error" if len(problems) == 1 else "validation errors"
    lines = [f"{len(problems)} {noun} for {class_name}"]
    for problem in problems:
        if problem.place:
            lines.append(problem.place)
        lines.append(
            f"  {problem.text} [type={problem.kind}, input_value={problem.value!r:.80}, "
            f"input_type={type(problem.value).__name__}]"
        )
        lines.append(f"    For further information visit {PYDANTIC_HELP}{problem.kind}")
    return "\n".join(lines)


def _after(class_name: str, value: dict[str, Any]) -> str | None:
    if class_name == "KVTransferConfig" and value.get("kv_connector") and not value.get("kv_role"):
        reason = (
            "Value error, Please specify kv_role when kv_connector is set, "
            f"supported roles are {KV_ROLES}"
        )
        return _report(class_name, [Problem("", reason, "value_error", value)])
    return None


def _check_class(class_name: str, value: Any, classes: Classes, place: str) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(place, "Input should be an object", "dataclass_type", value)]
    fields, order = classes[class_name], FIELD_ORDER.get(class_name, ())
    problems = []
    places = {key: order.index(key) if key in order else len(order) for key in value}
    for key, item in sorted(value.items(), key=lambda pair: places[pair[0]]):
        inner = f"{place}.{key}" if place else key
        if key not in fields:
            text, kind = "Unexpected keyword argument", "unexpected_keyword_argument"
            problems.append(Problem(inner, text, kind, item))
        elif key == "cudagraph_mode" and isinstance(item, str):
            if item.upper() not in GRAPH_MODES:
                raise UnknownGraphMode(item.upper())
        elif key == "mode" and class_name == "CompilationConfig":
            problems.extend(_check_mode(item, inner))
        elif key in INTEGER_LISTS and isinstance(item, list):
            for number, each in enumerate(item):
                problems.extend(_check_value(["int"], each, classes, f"{inner}.{number}"))
        else:
            problems.extend(_check_value(fields[key], item, classes, inner))
    return problems


def _check_mode(value: Any, place: str) -> list[Problem]:
    """How much is compiled: a number or a name of ``CompilationMode``."""
    if value is None or (isinstance(value, str) and value.upper() in COMPILATION_MODES):
        return []
    if isinstance(value, str):
        text = f"Value error, Invalid compilation mode: {value}. Valid modes are: {', '.join(COMPILATION_MODES)}"
        return [Problem(place, text, "value_error", value)]
    if isinstance(value, bool) or value not in range(len(COMPILATION_MODES)):
        return [Problem(place, "Input should be 0, 1, 2 or 3", "enum", value)]
    return []


def _check_value(kinds: list[str], value: Any, classes: Classes, place: str) -> list[Problem]:
    nested = [kind[6:] for kind in kinds if kind.startswith("class:")]
    for class_name in nested:
        if class_name in classes and isinstance(value, dict):
            return _check_class(class_name, value, classes, place)
    if any(name not in classes for name in nested) or _fits(kinds, value):
        return []
    literals = [kind[8:] for kind in kinds if kind.startswith("literal:")]
    if literals:
        head = ", ".join(repr(x) for x in literals[:-1])
        text = (
            f"Input should be {head} or {literals[-1]!r}"
            if head
            else f"Input should be {literals[-1]!r}"
        )
        return [Problem(place, text, "literal_error", value)]
    first = next((kind for kind in kinds if kind != "none"), "any")
    text, kind = _type_problem(first, value)
    return [Problem(place, text, kind, value)]


def _type_problem(kind: str, value: Any) -> tuple[str, str]:
    if kind in ("int", "float", "bool") and isinstance(value, str):
        noun = {"int": "integer", "float": "number", "bool": "boolean"}[kind]
        verb = "interpret input" if kind == "bool" else "parse string"
        suffix = (
            ", unable to "
            + verb
            + ("" if kind == "bool" else f" as {'an' if kind == 'int' else 'a'} {noun}")
        )
        return f"Input should be a valid {noun}{suffix}", f"{kind}_parsing"
    if kind == "int" and isinstance(value, float):
        said = "Input should be a valid integer, got a number with a fractional part"
        return said, "int_from_float"
    names = {
        "int": "a valid integer",
        "float": "a valid number",
        "bool": "a valid boolean",
        "str": "a valid string",
        # in the words of JSON, as which they come
        "dict": "an object",
        "list": "a valid array",
    }
    short = {"str": "string"}.get(kind, kind)
    return f"Input should be {names.get(kind, 'valid')}", f"{short}_type"


def _fits(kinds: list[str], value: Any) -> bool:
    """Say whether a value is, or is coerced to, one of the kinds; unknown kinds take anything."""
    tests: dict[str, Callable[[Any], bool]] = {
        "none": lambda x: x is None,
        "bool": lambda x: (
            isinstance(x, bool) or x in (0, 1, "true", "false", "True", "False", "0", "1")
        ),
        "int": _is_int,
        "float": _is_float,
        "str": lambda x: isinstance(x, str),
        "dict": lambda x: isinstance(x, dict),
        "list": lambda x: isinstance(x, list),
    }
    for kind in kinds:
        if kind.startswith("literal:"):
            if str(value) == kind[8:]:
                return True
        elif kind not in tests:
            if not kind.startswith("class:"):
                return True
        elif tests[kind](value):
            return True
    return False


def _is_int(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lstrip("+-").isdigit()
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_float(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
