"""Pydantic's errors as problems: where it was written, what is wrong, and the nearest valid key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import Problem
from infra.spec.edge import PATH_PATTERN
from infra.spec.nearest import nearest
from infra.spec.stack import StackSpec
from infra.spec.yaml_source import Path, dotted


class Place(NamedTuple):
    """Where a field was written: `file` as the operator named it, 1-based line and column."""

    file: str
    line: int | None
    column: int | None


def validate_stack(
    data: dict[str, object], places: Mapping[Path, Place], file: str, problems: list[Problem]
) -> StackSpec | None:
    """The spec of a merged map, or None with a problem per wrong field."""
    try:
        return StackSpec.model_validate(data)
    except ValidationError as error:
        seen: set[str] = set()  # the members of a union each report the same field
        for detail in _meant(error.errors(include_url=False), data):
            problem = _shape_problem(detail, data, places, file)
            if problem.field not in seen:
                seen.add(problem.field)
                problems.append(problem)
        return None


def _meant(details: list[ErrorDetails], data: Mapping[str, object]) -> list[ErrorDetails]:
    """Of a value that may have several forms, the errors of the form that it was meant to have.

    That is the one with the fewest errors, among those that the value is not altogether wrong for.
    """
    members: dict[Path, dict[str | int, list[ErrorDetails]]] = {}
    chosen = [detail for detail in details if _union_member(detail, data) is None]
    for detail in details:
        found = _union_member(detail, data)
        if found is not None:
            members.setdefault(found[0], {}).setdefault(found[1], []).append(detail)
    for prefix, by_member in members.items():
        inside = [
            errors
            for errors in by_member.values()
            if all(_written_path(tuple(each["loc"]), data) != prefix for each in errors)
        ]
        fewest: list[ErrorDetails] = min(inside or list(by_member.values()), key=len)
        chosen += fewest
    return sorted(chosen, key=details.index)


def _union_member(
    detail: ErrorDetails, data: Mapping[str, object]
) -> tuple[Path, str | int] | None:
    """The path of a value with several forms and the form that an error is about; None for other values."""
    location = tuple(detail["loc"])
    path, rest = _walk(location, data)
    return (path, rest[0]) if rest and _is_form(rest[0]) else None


def _shape_problem(
    detail: ErrorDetails, data: Mapping[str, object], places: Mapping[Path, Place], file: str
) -> Problem:
    path = _written_path(tuple(detail["loc"]), data)
    place: Place | None = None
    probe = path
    while place is None and probe:
        place = places.get(probe)
        probe = probe[:-1]
    rule, what, fix = _words(detail, path)
    return Problem(
        rule=rule,
        severity="error",
        field=dotted(path),
        what=what,
        fix=fix,
        file=place.file if place else file,
        line=place.line if place else None,
    )


def _written_path(location: tuple[str | int, ...], data: Mapping[str, object]) -> Path:
    """Pydantic's location without the names of union members that it puts in between."""
    path, rest = _walk(location, data)
    while rest:
        if not _is_form(rest[0]):
            return (*path, rest[0])  # a key that is missing
        inner, rest = _walk(rest[1:], _value_at(path, data))
        path = (*path, *inner)
    return path


def _walk(location: tuple[str | int, ...], data: object) -> tuple[Path, tuple[str | int, ...]]:
    """As much of a location as is written in the data, and the rest of it."""
    inner = data
    for index, part in enumerate(location):
        is_item = isinstance(inner, list) and isinstance(part, int) and part < len(inner)
        if not is_item and not (isinstance(inner, Mapping) and part in inner):
            return location[:index], location[index:]
        inner = _value_at((part,), inner)
    return location, ()


def _value_at(path: Path, data: object) -> object:
    inner = data
    for part in path:
        inner = inner[part] if isinstance(inner, Mapping | list) else None  # type: ignore[index]
    return inner


def _is_form(part: str | int) -> bool:
    """Whether a part of a location that is written nowhere names one of a value's forms."""
    name = str(part)
    return (
        name[:1].isupper()
        or "[" in name
        or name in {"constrained-str", "bool", "int", "float", "str"}
    )


def _words(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    """Rule id, what and fix for one of pydantic's error types."""
    describe = _DESCRIPTIONS.get(detail["type"], _wrong_type)
    return describe(detail, path)


def _unknown_key(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    del detail
    leaf = str(path[-1]) if path else ""
    return "unknown-key", f"There is no field {leaf} here.", nearest(leaf, _fields_at(path[:-1]))


def _missing_key(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    del detail
    leaf = str(path[-1]) if path else ""
    return "missing-key", f"{_named(path)} is missing.", f"Add `{leaf}:`."


def _unknown_value(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    given = detail["input"]
    allowed = str(detail.get("ctx", {}).get("expected", "")).replace("'", "")
    what = f"{_shown(given, path)} is not one of {allowed}."
    words = [word.strip() for word in allowed.replace(" or ", ",").split(",")]
    return "unknown-value", what, nearest(str(given), [word for word in words if word])


def _wrong_form(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    pattern = detail.get("ctx", {}).get("pattern", "")
    if pattern == PATH_PATTERN:
        what = f"{_shown(detail['input'], path)} is no exact path."
        return "wrong-value", what, "Write one path such as /v1/models, without `*`, `?` and `//`."
    what = f"{_shown(detail['input'], path)} does not have the form {pattern}."
    return (
        "wrong-value",
        what,
        _REFERENCE_FIX if path[:1] == ("secrets",) else "Write it in that form.",
    )


def _wrong_value(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    what = f"{_named(path)}: {str(detail['msg']).removeprefix('Value error, ')}."
    return "wrong-value", what, "Write one of these."


def _wrong_network(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    told = detail["ctx"]
    return "wrong-value", f"{_shown(detail['input'], path)} {told['what']}.", str(told["fix"])


def _out_of_range(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    limits = detail.get("ctx", {})
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [f"{words[key]} {limit:g}" for key, limit in limits.items() if key in words]
    what = f"{_shown(detail['input'], path)} is out of range."
    return "wrong-unit", what, f"Use a value in range: {' and '.join(bounds)}."


def _too_short(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    least = detail.get("ctx", {}).get("min_length", 1)
    what = f"{_shown(detail['input'], path)} is shorter than {least} characters."
    return "wrong-value", what, f"Write at least {least}."


def _wrong_type(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    given = detail["input"]
    if path[:1] == ("secrets",):
        return "wrong-type", f"{_named(path)} is not a reference.", _REFERENCE_FIX
    if {"flags", "env"} & {*path[:-1]}:
        what = f"{_shown(given, path)} is no plain value."
        return (
            "wrong-type",
            what,
            "Write text, a number, true or false; for a flag a list or a map too.",
        )
    if detail["type"] in _MAP_TYPES:
        return "wrong-type", f"{_shown(given, path)} is not a map.", "Write `key: value` under it."
    if detail["type"] in _LIST_TYPES:
        return "wrong-type", f"{_shown(given, path)} is not a list.", "Write [a, b]."
    if detail["type"] == "string_type" and isinstance(given, int | float):
        return "wrong-type", f"{given!r} is not text.", f'Write it in quotes: "{given}".'
    wanted = _article(detail["msg"].removeprefix("Input should be ").removeprefix("a valid "))
    return "wrong-type", f"{_shown(given, path)} is not {wanted}.", f"Write {wanted} without unit."


def _shown(value: object, path: Path) -> str:
    """A wrong value as it was written, but for what may be a secret."""
    may_be_secret = path[:1] == ("secrets",) or "env" in path or "key" in dotted(path)
    if may_be_secret:
        return "The value"
    return str(value) if isinstance(value, date) else repr(value)


_REFERENCE_FIX = "Write `{env: NAME}` or `{file: PATH}`; the value itself never stands in a stack."
_MAP_TYPES = ("dict_type", "model_type", "model_attributes_type")
_LIST_TYPES = ("list_type", "tuple_type")

_DESCRIPTIONS: Mapping[str, Callable[[ErrorDetails, Path], tuple[str, str, str]]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing_key,
    "literal_error": _unknown_value,
    "string_pattern_mismatch": _wrong_form,
    "string_too_short": _too_short,
    "value_error": _wrong_value,
    "network": _wrong_network,
    "greater_than": _out_of_range,
    "greater_than_equal": _out_of_range,
    "less_than": _out_of_range,
    "less_than_equal": _out_of_range,
}


def _named(path: Path) -> str:
    return dotted(path) or "the stack"


def _article(noun: str) -> str:
    return (
        noun if noun.startswith(("a ", "an ")) else f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
    )


def _fields_at(path: Path) -> list[str]:
    """The fields that the spec has at a path, for suggestions."""
    models: list[type[BaseModel]] = [StackSpec]
    for part in path:
        found: list[type[BaseModel]] = []
        for model in models:
            field = model.model_fields.get(str(part))
            if field is not None:
                found.extend(_models_in(field.annotation))
        models = found
    return sorted(
        {name for model in models for name in model.model_fields}
        | ({"extends"} if not path else set())
    )


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
