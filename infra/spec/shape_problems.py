"""Pydantic's errors as problems: where it was written, what is wrong, and the nearest valid key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import Problem
from infra.spec.edge import PATH_PATTERN
from infra.spec.model_fields import fields_at, is_reference, places_of, words_at
from infra.spec.nearest import nearest
from infra.spec.platform_words import meant_platform
from infra.spec.stack import StackSpec
from infra.spec.yaml_source import Path, dotted

# Our own beside pydantic's types of errors.
NO_REFERENCE = "no_reference"
# A name that stands in more sections of the spec says nothing of what was meant.
MAX_PLACES = 2


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
        problems += shape_problems(error, StackSpec, data, places, file)
        return None


def shape_problems(
    error: ValidationError,
    kind: type[BaseModel],
    data: object,
    places: Mapping[Path, Place],
    file: str,
) -> list[Problem]:
    """A problem for each wrong field of a file.

    Args:
        error: of pydantic.
        kind: what the file, or each row of it, should have been.
        data: what it is.
        places: where each field stands.
        file: for fields that stand nowhere.
    """
    found: dict[str, Problem] = {}  # the members of a union each report the same field
    for detail in _of_references(_meant(error.errors(include_url=False), data), data):
        problem = _shape_problem(detail, kind, data, places, file)
        found.setdefault(problem.field, problem)
    return list(found.values())


def _meant(details: list[ErrorDetails], data: object) -> list[ErrorDetails]:
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


def _union_member(detail: ErrorDetails, data: object) -> tuple[Path, str | int] | None:
    """The path of a value with several forms and the form that an error is about; None for other values."""
    location = tuple(detail["loc"])
    path, rest = _walk(location, data)
    return (path, rest[0]) if rest and _is_form(rest[0]) else None


def _of_references(details: list[ErrorDetails], data: object) -> list[ErrorDetails]:
    """What both forms of a secret's reference say of a value that is none of them, as one error."""
    chosen: list[ErrorDetails] = []
    pairs = [(_written_path(tuple(each["loc"]), data), each) for each in details]
    exact = {_reference_above(path) for path, each in pairs if each["type"] not in _FORMS}
    for path, detail in pairs:
        reference = _reference_above(path)
        is_wanted = path == reference and detail["type"] == "missing"
        if not reference or detail["type"] not in _FORMS or is_wanted:
            chosen.append(detail)
        elif reference not in exact:
            chosen.append({**detail, "type": NO_REFERENCE})
    return chosen


def _reference_above(path: Path) -> Path:
    """The path of the reference that a path is of or leads into, () for none."""
    ends = range(1, len(path) + 1)
    return next((path[:end] for end in ends if is_reference(path[:end])), ())


def _shape_problem(
    detail: ErrorDetails,
    kind: type[BaseModel],
    data: object,
    places: Mapping[Path, Place],
    file: str,
) -> Problem:
    path = _written_path(tuple(detail["loc"]), data)
    path += (str(detail["ctx"]["field"]),) if "field" in detail.get("ctx", {}) else ()
    if detail["type"] == NO_REFERENCE:
        path = _reference_above(path)
    place: Place | None = None
    probe = path
    while place is None and probe:
        place = places.get(probe)
        probe = probe[:-1]
    rule, what, fix = _words(detail, path, kind)
    return Problem(
        rule=rule,
        severity="error",
        field=dotted(path),
        what=what,
        fix=fix,
        file=place.file if place else file,
        line=place.line if place else None,
    )


def _written_path(location: tuple[str | int, ...], data: object) -> Path:
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


def _words(detail: ErrorDetails, path: Path, kind: type[BaseModel]) -> tuple[str, str, str]:
    """Rule id, what and fix for one of pydantic's error types."""
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, kind)
    words = words_at(path, kind) if detail["type"] in _MAP_TYPES else []
    if words:
        what = f"{_shown(detail['input'], path)} is neither {' nor '.join(words)} nor a map."
        fix = f"Write {', '.join(words)}, or a map of {' and '.join(fields_at(path, kind))}."
        return "wrong-type", what, fix
    describe = _DESCRIPTIONS.get(detail["type"], _wrong_type)
    return describe(detail, path)


def _unknown_key(path: Path, kind: type[BaseModel]) -> tuple[str, str, str]:
    leaf = str(path[-1]) if path else ""
    known, elsewhere = fields_at(path[:-1], kind), places_of(leaf.lower(), kind)
    fix = nearest(leaf.lower() if leaf.lower() in known else leaf, known)
    if leaf.lower() not in known and 0 < len(elsewhere) <= MAX_PLACES:
        fix = f"`{leaf.lower()}` stands {' or '.join(elsewhere)}: write it there."
    return "unknown-key", f"There is no field {leaf} here.", fix


def _missing_key(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    del detail
    leaf = str(path[-1]) if path else ""
    wanted = f"{leaf}: {{file: PATH}}" if is_reference(path) else f"{leaf}:"
    return "missing-key", f"{_named(path)} is missing.", f"Add `{wanted}`."


def _unknown_value(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    given = detail["input"]
    allowed = str(detail.get("ctx", {}).get("expected", "")).replace("'", "")
    what = f"{_shown(given, path)} is not one of {allowed}."
    words = [word.strip() for word in allowed.replace(" or ", ",").split(",")]
    meant = meant_platform(str(given)) if path[-1:] == ("platform",) else None
    if meant is not None:
        return "unknown-value", what, f"Write {meant}."
    return "unknown-value", what, nearest(str(given), [word for word in words if word])


def _wrong_form(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    pattern = detail.get("ctx", {}).get("pattern", "")
    if pattern == PATH_PATTERN:
        what = f"{_shown(detail['input'], path)} is no exact path."
        return "wrong-value", what, "Write one path such as /v1/models, without `*`, `?` and `//`."
    wanted = _NAMES.get(str(path[-1])) if path else None
    if wanted is not None:
        what = f"{_shown(detail['input'], path)} is no name for {'.'.join(map(str, path))}."
        return "wrong-value", what, f"Write {wanted}."
    what = f"{_shown(detail['input'], path)} does not have the form {pattern}."
    return (
        "wrong-value",
        what,
        _REFERENCE_FIX if _reference_above(path) else "Write it in that form.",
    )


def _wrong_value(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    what = f"{_named(path)}: {str(detail['msg']).removeprefix('Value error, ')}."
    return "wrong-value", what, "Write one of these."


def _secret_itself(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    del detail
    what = f"{_named(path)} has the shape of a secret itself, which is not shown here."
    fix = f"{_REFERENCE_FIX} Whoever saw the command line or the file knows that secret by now: revoke it."
    return "wrong-value", what, fix


def _no_reference(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    del detail
    return "wrong-type", f"{_named(path)} is not a reference.", _REFERENCE_FIX


def _no_such_form(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    told = detail["ctx"]
    return "wrong-value", f"{_shown(detail['input'], path)} {told['what']}.", str(told["fix"])


def _told(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    """What a model says of a whole map, at the `field` that it names."""
    del path
    return "wrong-value", f"{detail['ctx']['what']}.", str(detail["ctx"]["fix"])


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


_NAMES: Mapping[str, str] = {
    "checkpoint": "an id of infra/catalog/checkpoints/, or its name at the hub",
    "accelerator": "an id of infra/catalog/accelerators/, or its vendor's name",
    "served_name": "letters, digits and . _ : / @ + -, a letter or digit first",
}
_REFERENCE_FIX = "Write `{env: NAME}` or `{file: PATH}`; the value itself never stands in a stack."
_MAP_TYPES = ("dict_type", "model_type", "model_attributes_type")
# What a form of a reference says of a value that has not this form.
_FORMS = {*_MAP_TYPES, "extra_forbidden", "missing"}
_LIST_TYPES = ("list_type", "tuple_type")

_DESCRIPTIONS: Mapping[str, Callable[[ErrorDetails, Path], tuple[str, str, str]]] = {
    "missing": _missing_key,
    NO_REFERENCE: _no_reference,
    "literal_error": _unknown_value,
    "string_pattern_mismatch": _wrong_form,
    "string_too_short": _too_short,
    "value_error": _wrong_value,
    "secret_itself": _secret_itself,
    "form": _no_such_form,
    "told": _told,
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
