"""Python values as JSON: the same on every machine, and never a stand-in."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any

from infra.packages.standins import is_standin


class StandInSeenError(Exception):
    """A value of a package that is not installed would have come into the catalogue."""


def plain(value: object) -> Any:
    """A default or choice as JSON.

    A configuration object becomes the call that makes it, with what differs from its class's own defaults:
    `EPLBConfig()`. A member of an enumeration becomes its name, or its number.

    Raises:
        StandInSeenError: the value came out of a package that is not installed.
    """
    if is_standin(value):
        raise StandInSeenError(repr(value))
    if isinstance(value, enum.Enum):
        return int(value) if isinstance(value, enum.IntEnum) else value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _call(value)
    return _contents(value)


def _contents(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((plain(each) for each in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return _named(value)


def _named(value: object) -> str:
    """A path as text, a class or function by its name, any other object by its class's."""
    if isinstance(value, PurePath):
        return str(value)
    return str(getattr(value, "__qualname__", type(value).__name__))


def _call(value: Any) -> str:
    kind = type(value)
    usual = kind()
    told = [
        f"{field.name}={plain(getattr(value, field.name))!r}"
        for field in dataclasses.fields(value)
        if field.init and getattr(value, field.name, None) != getattr(usual, field.name, None)
    ]
    return f"{kind.__name__}({', '.join(told)})"
