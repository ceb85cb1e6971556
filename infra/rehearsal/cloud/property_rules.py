"""Whether a resource's inputs are those that pulumi-aws declares: names, required ones, kinds of value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from infra.rehearsal.cloud.package_types import (
    ListOf,
    MapOf,
    ObjectOf,
    Property,
    ValueType,
    nested_properties,
)
from infra.rehearsal.cloud.wire import UNKNOWN

# Put into every input by the engine's own bookkeeping, not by the program.
_BOOKKEEPING = frozenset({"__defaults", "__internal"})
_SHAPE_NAMES = {ListOf: "a list", MapOf: "a map", ObjectOf: "an object"}


def property_failures(
    inputs: Mapping[str, object], declared: Mapping[str, Property], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Property path and reason for everything that the real provider would refuse by its schema."""
    for name, wanted in declared.items():
        if wanted.is_required and inputs.get(name) is None:
            yield (
                f"{prefix}{name}",
                f'Missing required argument. The argument "{prefix}{name}" is required',
            )
    for name, value in inputs.items():
        if name in _BOOKKEEPING:
            continue
        if name not in declared:
            yield f"{prefix}{name}", _unknown(name, prefix, declared)
        elif value is not None and value != UNKNOWN:
            yield from _value_failures(value, declared[name].type, f"{prefix}{name}")


def _unknown(name: str, prefix: str, declared: Mapping[str, Property]) -> str:
    near = difflib.get_close_matches(name, declared, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    return f'An argument named "{prefix}{name}" is not expected here.{hint}'


def _value_failures(value: object, wanted: ValueType, path: str) -> Iterator[tuple[str, str]]:
    if value is None or value == UNKNOWN:
        return
    if not _is_of_shape(value, wanted):
        yield path, f'Inappropriate value for "{path}": {_SHAPE_NAMES[type(wanted)]} is required'
    elif isinstance(wanted, ListOf) and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _value_failures(each, wanted.element, f"{path}[{index}]")
    elif isinstance(wanted, MapOf) and isinstance(value, dict):
        for key, each in value.items():
            yield from _value_failures(each, wanted.element, f"{path}.{key}")
    elif isinstance(wanted, ObjectOf) and isinstance(value, dict):
        yield from property_failures(value, nested_properties(wanted), f"{path}.")
    elif isinstance(wanted, str) and not _is_scalar(value, wanted):
        yield path, f'Inappropriate value for "{path}": {value!r} is not a {wanted}'


def _is_of_shape(value: object, wanted: ValueType) -> bool:
    match wanted:
        case ListOf():
            return isinstance(value, list)
        case MapOf() | ObjectOf():
            return isinstance(value, dict)
        case _:
            return True


def _is_scalar(value: object, wanted: str) -> bool:
    """Whether a value is of a kind, or a text that the provider would convert to it."""
    match wanted:
        case "text":
            return isinstance(value, str | int | float | bool)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or _reads_as(value, int)
        case "number":
            return (isinstance(value, int | float) and not isinstance(value, bool)) or _reads_as(
                value, float
            )
        case "truth":
            return isinstance(value, bool) or value in ("true", "false")
        case _:
            return True


def _reads_as(value: object, kind: type[int | float]) -> bool:
    if not isinstance(value, str):
        return False
    try:
        kind(value)
    except ValueError:
        return False
    return True
