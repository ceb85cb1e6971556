"""What the real provider answers beside inputs: recordings of it, with account and numbers taken out.

`recorded_outputs.json` holds two things of every emulated type that somebody has recorded: `constant`, the outputs that
every recording has alike when the program does not set them, and `shape`, how others look (`{hex}` for the digits of
an id). `scripts/dump-recorded-outputs` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("recorded_outputs.json")


def constant_outputs(token: str, region: str) -> dict[str, object]:
    """The outputs that the provider gives to every resource of a type, by name."""
    found = _recorded().get(token, {}).get("constant", {})
    return {
        name: value.replace("{region}", region) if isinstance(value, str) else value
        for name, value in found.items()
    }


@cache
def _recorded() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    recorded: Mapping[str, Mapping[str, Mapping[str, object]]] = json.loads(
        FILE.read_text(encoding="utf-8")
    )["types"]
    return recorded
