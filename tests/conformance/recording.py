"""Records the real engine's answers unit by unit: stopped, it goes on where it was."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.bench import Bench
from tests.conformance.groups import MachineTooSlow
from tests.conformance.suite import Unit, run_unit

Say = Callable[[str], None]


def record(
    bench: Bench, wanted: Sequence[Unit], engine: str, kept: Path, say: Say
) -> dict[str, Any]:
    """Every case's answer, in the order of the suite.

    A unit for which the machine was too slow is asked again when all others have been, while that gains any.

    Args:
        bench: of the real engine.
        wanted: what is asked.
        engine: names what is installed; answers of another one are not kept.
        kept: what has been asked so far; it is gone when all has.
        say: told about progress.

    Raises:
        MachineTooSlow: for every unit that is left; what has been asked is kept.
    """
    rows = _read(kept)
    marks = {unit.name: _mark(unit, engine) for unit in wanted}
    left = [unit for unit in wanted if rows.get(unit.name, {}).get("mark") != marks[unit.name]]
    if len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} units kept from before")
    while left:
        slow: list[Unit] = []
        for unit in left:
            begun = time.monotonic()
            try:
                answers = run_unit(unit, bench, lambda _: None)
            except MachineTooSlow as error:
                say(f"{unit.name}: later, {error}")
                slow.append(unit)
                if len(slow) == len(left):
                    raise
                continue
            rows[unit.name] = {"mark": marks[unit.name], "answers": answers}
            _write(kept, rows)
            say(f"{unit.name}: {len(answers)} answers, {time.monotonic() - begun:.0f} s")
        left = slow
    kept.unlink(missing_ok=True)
    return {name: answer for unit in wanted for name, answer in rows[unit.name]["answers"].items()}


def _mark(unit: Unit, engine: str) -> str:
    return hashlib.sha256(f"{engine}\n{unit.text}".encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return rows


def _write(path: Path, rows: dict[str, Any]) -> None:
    """Whole or not at all: it may be stopped at any moment."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    new.replace(path)
