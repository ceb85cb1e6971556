"""What the JSON-valued flags of a release may hold, read out of its package (`fields/`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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


@lru_cache(maxsize=8)
def read_field_catalogue(path: Path) -> FieldCatalogue:
    """A catalogue file as look-up tables."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return FieldCatalogue(
        flag_kinds={
            flag.lstrip("-"): tuple(kinds) for flag, kinds in document["flag_types"].items()
        },
        classes={
            name: {field: tuple(kinds) for field, kinds in fields.items()}
            for name, fields in document["classes"].items()
        },
        tool_call_parsers=frozenset(document["tool_call_parsers"]),
        reasoning_parsers=frozenset(document["reasoning_parsers"]),
    )
