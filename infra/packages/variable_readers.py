"""What vLLM's readers of its environment variables take: each is run on a few values; one with choices holds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

# What distinguishes readers: a whole number, any number, a word that stands for a switch elsewhere, and any other.
_WHOLE, _FRACTION, _SWITCH, _WORD = "1", "1.5", "true", "no-such-value"
_SEPARATOR = ","


def taken_values(readers: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, Any]]:
    """What the readers that refuse some value take, by variable.

    Args:
        readers: variable → a function that reads it from the environment.

    Returns:
        Of each one `{"reads": "int"}`, `{"reads": "float"}`, or `{"choices": […]}` with `any_case` where case does not
        matter and `separator` where several may be given. A reader that takes everything is not there.
    """
    found = {name: _taken(name, reader) for name, reader in sorted(readers.items())}
    return {name: row for name, row in found.items() if row}


def _taken(name: str, reader: Callable[[], object]) -> dict[str, Any]:
    held = _held(reader)
    if "choices" in held:
        return _chosen(held)
    takes = {value for value in (_WHOLE, _FRACTION, _SWITCH, _WORD) if _reads(name, reader, value)}
    if takes == {_WHOLE}:
        return {"reads": "int"}
    return {"reads": "float"} if takes == {_WHOLE, _FRACTION} else {}


def _chosen(held: Mapping[str, Any]) -> dict[str, Any]:
    """Of a reader that was made by `env_with_choices` and its kin."""
    given = held["choices"]
    row: dict[str, Any] = {
        "choices": [str(each) for each in (given() if callable(given) else given)]
    }
    if held.get("case_sensitive") is False:
        row["any_case"] = True
    if isinstance(held.get("default"), list):
        row["separator"] = _SEPARATOR
    return row


def _held(reader: Callable[[], object]) -> Mapping[str, Any]:
    """The variables that a function has from where it was made."""
    code, cells = getattr(reader, "__code__", None), getattr(reader, "__closure__", None)
    names = code.co_freevars if code is not None and cells else ()
    held: dict[str, Any] = {}
    for name, cell in zip(names, cells or (), strict=False):
        with suppress(ValueError):  # of one that was never set
            held[name] = cell.cell_contents
    return held


def _reads(name: str, reader: Callable[[], object], value: str) -> bool:
    """Whether a reader takes a value; one that fails for another reason than the value says nothing."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        reader()
    except ValueError:
        return False
    except Exception:  # noqa: BLE001 - what it asks for beside the value is not here
        return True
    else:
        return True
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
