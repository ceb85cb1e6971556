"""What the JSON-valued flags of a release may hold, out of its package's catalogue (`packages/`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Kinds = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FieldCatalogue:
    """The configuration classes behind JSON flags. Equal only to itself.

    Args:
        flag_kinds: canonical flag name → kinds of value (`int`, `literal:mp`, `class:KVTransferConfig`, …).
        classes: class → field → kinds of its value.
        tool_call_parsers: the names that the release registers.
        reasoning_parsers: the same.
    """

    flag_kinds: Mapping[str, Kinds]
    classes: Mapping[str, Mapping[str, Kinds]]
    tool_call_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]


def read_fields(
    rows: Iterable[Mapping[str, Any]],
    classes: Mapping[str, Mapping[str, Mapping[str, Any]]],
    names: Mapping[str, Iterable[str]],
) -> FieldCatalogue:
    """The sections of a package's catalogue as look-up tables.

    Args:
        rows: the flags of the command that serves.
        classes: class → field → `kinds` and `default`.
        names: what the release registers, by kind.
    """
    return FieldCatalogue(
        flag_kinds={row["name"].lstrip("-"): tuple(row["kinds"]) for row in rows if "kinds" in row},
        classes={
            name: {field: tuple(row["kinds"]) for field, row in fields.items()}
            for name, fields in classes.items()
        },
        tool_call_parsers=frozenset(names.get("tool_call_parsers", ())),
        reasoning_parsers=frozenset(names.get("reasoning_parsers", ())),
    )
