"""Records the real engine's answers unit by unit: stopped, it goes on where it was."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.bench import Bench
from tests.conformance.suite import Unit, run_unit

Say = Callable[[str], None]


def record(
    bench: Bench, wanted: Sequence[Unit], engine: str, kept: Path, say: Say
) -> dict[str, Any]:
    """Every case's answer, in the order of the suite.

    Args:
        bench: of the real engine.
        wanted: what is asked.
        engine: names what is installed; answers of another one are not kept.
        kept: what has been asked so far; it is gone when all has.
        say: told about progress.
    """
    rows = _read(kept)
    for number, unit in enumerate(wanted, start=1):
        place, mark = f"{number} of {len(wanted)}", _mark(unit, engine)
        if rows.get(unit.name, {}).get("mark") == mark:
            say(f"{place}, {unit.name}: kept from before")
            continue
        begun = time.monotonic()
        answers = run_unit(unit, bench, lambda _: None)
        rows[unit.name] = {"mark": mark, "answers": answers}
        _write(kept, rows)
        say(f"{place}, {unit.name}: {len(answers)} answers, {time.monotonic() - begun:.0f} s")
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
