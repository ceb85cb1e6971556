"""Where two answers differ, and why they may."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.spec.plain_yaml import read_yaml

DIFFERENCES = Path(__file__).parent / "differences.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why the simulated engine answers a case otherwise.

    Args:
        at: every place of the answer that differs, e.g. `body.choices.0.logprobs`; `` for the whole.
    """

    why: str
    at: tuple[str, ...]


def explained() -> dict[str, Reason]:
    """The reasons by case."""
    rows = read_yaml(DIFFERENCES) or {}
    return {
        str(name): Reason(why=str(row["why"]), at=tuple(map(str, row["at"])))
        for name, row in rows.items()
    }


def places(real: Any, simulated: Any, place: str = "") -> tuple[str, ...]:
    """Where two answers differ: paths of keys and numbers, in the real one's order."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        found: list[str] = []
        for key in dict.fromkeys([*real, *simulated]):
            inner = f"{place}.{key}" if place else str(key)
            if key not in real or key not in simulated:
                found.append(inner)
            else:
                found += places(real[key], simulated[key], inner)
        return tuple(found)
    if isinstance(real, list) and isinstance(simulated, list) and len(real) == len(simulated):
        pairs = enumerate(zip(real, simulated, strict=True))
        return tuple(
            where
            for number, (one, other) in pairs
            for where in places(one, other, f"{place}.{number}" if place else str(number))
        )
    return () if real == simulated else (place,)
