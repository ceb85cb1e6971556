"""An argparse parser, which a package built, as rows: one for each flag."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from infra.packages.plain_values import plain

STORE = "_StoreAction"


class EmptyChoicesError(Exception):
    """A flag would accept nothing: what its choices are read from was not there."""


def flag_rows(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Every flag of a parser, sorted by name; what is usual is left out of a row.

    Returns:
        Rows with `name` and, where it is not the usual: `options` ([name]), `dest` (from the name), `type`
        (none), `action` (store), `nargs` (none), `choices` (any), `default` (null), `required` (false).

    Raises:
        EmptyChoicesError: a flag has choices, and none is left.
    """
    rows = [_row(action) for action in _actions(parser)]
    return sorted(rows, key=lambda row: (not row["name"].startswith("-"), str(row["name"])))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list flags
        if not isinstance(action, argparse._HelpAction):  # noqa: SLF001
            yield action


def _row(action: argparse.Action) -> dict[str, Any]:
    options = [str(option) for option in action.option_strings]
    name = max(options, key=len, default=action.dest)
    if options and options[0].startswith("--"):
        name = options[0]
    kind = type(action).__name__
    row = {
        "name": name,
        "options": options if options and options != [name] else None,
        "dest": None if action.dest == name.lstrip("-").replace("-", "_") else action.dest,
        "type": _type(action),
        "action": None if kind == STORE else kind,
        "nargs": plain(action.nargs),
        "choices": _choices(action, name),
        "default": plain(action.default),
        "required": action.required or None,
    }
    return {key: value for key, value in row.items() if value is not None}


def _choices(action: argparse.Action, name: str) -> list[Any] | None:
    if action.choices is None:
        return None
    choices = sorted({plain(choice) for choice in action.choices}, key=str)
    if not choices:
        raise EmptyChoicesError(name)
    return choices


def _type(action: argparse.Action) -> str | None:
    if action.nargs == 0:
        return "bool"
    return None if action.type is None else getattr(action.type, "__name__", str(action.type))
