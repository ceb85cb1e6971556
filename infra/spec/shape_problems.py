"""Pydantic's errors as problems: where it was written, what is wrong, and the nearest valid key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import Problem
from infra.spec.stack import StackSpec
from infra.spec.yaml_source import Path, dotted


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a field was written: `file` as the operator named it, 1-based line and column."""

    file: str
    line: int | None
    column: int | None


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """`Did you mean a, b or c?`, the names nearest to a word, or all when few."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=count, cutoff=0.3) or names[:count]
    if not close:
        return ""
    if len(close) == 1:
        return f"Did you mean {close[0]}?"
    return f"Did you mean {', '.join(close[:-1])} or {close[-1]}?"


def validate_stack(
    data: dict[str, object], places: Mapping[Path, Place], file: str, problems: list[Problem]
) -> StackSpec | None:
    """The spec of a merged map, or None with a problem per wrong field."""
    try:
        return StackSpec.model_validate(data)
    except ValidationError as error:
        seen: set[str] = set()  # the members of a union each report the same field
        for detail in error.errors(include_url=False):
            problem = _shape_problem(detail, data, places, file)
            if problem.field not in seen:
                seen.add(problem.field)
                problems.append(problem)
        return None


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
    path: list[str | int] = []
    inner: object = data
    for index, part in enumerate(location):
        if isinstance(inner, Mapping) and part in inner:
            inner = inner[str(part)]
            path.append(part)
        elif isinstance(inner, list) and isinstance(part, int):
            inner = inner[part] if part < len(inner) else None
            path.append(part)
        elif index == len(location) - 1 and isinstance(inner, Mapping):
            path.append(part)
    return tuple(path)


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
    what = f"{_named(path)}: {given!r} is not one of {allowed}."
    words = [word.strip() for word in allowed.replace(" or ", ",").split(",")]
    return "unknown-value", what, nearest(str(given), [word for word in words if word])


def _wrong_form(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    pattern = detail.get("ctx", {}).get("pattern", "")
    what = f"{_named(path)}: {detail['input']!r} does not have the form {pattern}."
    return "wrong-value", what, "Write it in that form."


def _wrong_value(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    what = f"{_named(path)}: {str(detail['msg']).removeprefix('Value error, ')}."
    return "wrong-value", what, "Mend the field."


def _out_of_range(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    what = f"{_named(path)}: {detail['input']!r} is out of range ({detail['msg'].lower()})."
    return "wrong-unit", what, "Use a value in range."


def _wrong_type(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    wanted = _article(detail["msg"].removeprefix("Input should be ").removeprefix("a valid "))
    what = f"{_named(path)}: {detail['input']!r} is not {wanted}."
    return "wrong-type", what, f"Write {wanted} without unit."


_DESCRIPTIONS: Mapping[str, Callable[[ErrorDetails, Path], tuple[str, str, str]]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing_key,
    "literal_error": _unknown_value,
    "string_pattern_mismatch": _wrong_form,
    "value_error": _wrong_value,
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
