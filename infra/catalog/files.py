"""The catalogue's files: read as plain values, and what is wrong with one in our words, with its file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from infra.catalog.sourced import Entry
from infra.errors import Problem, ProblemsFound
from infra.spec.plain_yaml import parse_yaml
from infra.spec.shape_problems import Place, shape_problems
from infra.spec.stack_files import PROJECT
from infra.spec.yaml_source import read_yaml, why_unreadable

_Kind = TypeVar("_Kind", bound=Entry)
_Made = TypeVar("_Made")
# What reading by hand raises where a value has another shape.
_MISSHAPEN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
RESTORE = "Restore the file as it was committed: a program writes it, and nobody edits it."


class CatalogueError(ProblemsFound):
    """A file of the catalogue is wrong."""


def catalogue_error(path: Path, what: str, fix: str, *, line: int | None = None) -> CatalogueError:
    """One thing that is wrong with a file, or a folder, of the catalogue."""
    problem = Problem(
        rule="catalogue-file",
        severity="error",
        field="",
        what=what,
        fix=fix,
        file=_shown(path),
        line=line,
    )
    return CatalogueError((problem,))


def read_entry(path: Path, kind: type[_Kind], **given: object) -> _Kind:
    """A YAML file, which is a map, as an entry of the catalogue.

    Args:
        path: of the file.
        kind: its shape.
        given: what follows from the file's place; the file may say otherwise.

    Raises:
        CatalogueError: it cannot be read, or has another shape: every problem, each with its line.
    """
    text = _text(path)
    data = _parsed(path, text)
    if not isinstance(data, dict):
        raise catalogue_error(path, "The file is not a map.", "Write `key: value`.", line=1)
    data = {**given, **data}
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _misshapen(path, text, kind, data, error) from error


def read_rows(path: Path, kind: type[_Kind], **given: object) -> tuple[_Kind, ...]:
    """A YAML or JSON file, which is a list of maps, as entries of the catalogue.

    Args:
        path: of the file.
        kind: the shape of a row.
        given: what follows from the file's place; a row may say otherwise.

    Raises:
        CatalogueError: it cannot be read, or rows have another shape: every problem, each with its line.
    """
    text = _text(path)
    data = _parsed(path, text)
    if isinstance(data, list):
        data = [{**given, **row} if isinstance(row, dict) else row for row in data]
    try:
        return TypeAdapter(tuple[kind, ...]).validate_python(data)  # type: ignore[valid-type]  # a class
    except ValidationError as error:
        raise _misshapen(path, text, kind, data, error) from error


def read_json(path: Path, make: Callable[[Any], _Made]) -> _Made:
    """What is made of a JSON file, which a program has written.

    Raises:
        CatalogueError: it is not there, is no JSON, or has another shape.
    """
    text = _text(path)
    try:
        return make(json.loads(text))
    except json.JSONDecodeError as error:
        what = f"It is no JSON: {error.msg}."
        raise catalogue_error(path, what, RESTORE, line=error.lineno) from error
    except _MISSHAPEN as error:
        what = f"Something in it is missing, or has another form: {type(error).__name__} {error}."
        raise catalogue_error(path, what, RESTORE) from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"The file cannot be read: {why_unreadable(error)}."
        raise catalogue_error(path, what, "Make it a text file that you may read.") from error


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError of YAML: a date that is none
        _, found = read_yaml(text, _shown(path), merges=True)
        if found:
            raise CatalogueError(tuple(found)) from error
        raise catalogue_error(path, f"It cannot be read: {error}.", "Mend that value.") from error


def _misshapen(
    path: Path, text: str, kind: type[BaseModel], data: Any, error: ValidationError
) -> CatalogueError:
    """Every problem of a file's shape; the file is read again for its lines."""
    file = _shown(path)
    document, found = read_yaml(text, file, merges=True)
    places = {
        key: Place(file=file, line=line, column=column)
        for key, (line, column) in document.positions.items()
    }
    problems = [*found, *shape_problems(error, kind, data, places, file)]
    return CatalogueError(tuple(sorted(problems, key=lambda problem: problem.line or 0)))


def _shown(path: Path) -> str:
    """A path as short as it is clear: relative to the project when inside it."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)
