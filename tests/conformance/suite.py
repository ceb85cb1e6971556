"""The suite: its units, each of which can be put to a subject by itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.conformance import alone, asking, groups, handover, shapes
from tests.conformance.bench import Bench
from tests.conformance.cases import REQUESTS
from tests.conformance.commands import REFUSALS

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Some cases that need the same engines.

    Args:
        name: for the record of what has been asked.
        text: changes with whatever its answers depend on.
        run: asks; yields each case's name and answer.
    """

    name: str
    text: str
    run: Callable[[Bench], Iterator[tuple[str, Any]]]


def units() -> tuple[Unit, ...]:
    """Every unit, in the order of the suite."""
    refusals = tuple(
        Unit(
            name=f"refused: {case.name}",
            text=f"{case}{inspect.getsource(alone.refusal)}{_source(asking, shapes)}",
            run=functools.partial(alone.refusal, case=case),
        )
        for case in REFUSALS
    )
    meetings = tuple(
        Unit(
            name=f"group: {run.__name__}",
            text=f"{inspect.getsource(run)}{_source(asking, shapes)}",
            run=run,
        )
        for run in (groups.meet, groups.headless, groups.at_work)
    )
    return (
        *refusals,
        Unit(
            name="one engine",
            text=f"{REQUESTS}{_source(alone, asking, shapes)}",
            run=alone.serving,
        ),
        Unit(
            name="prefill and decode",
            text=_source(handover, alone, asking, shapes),
            run=handover.pair,
        ),
        *meetings,
    )


def run_suite(bench: Bench, say: Say) -> dict[str, Any]:
    """Every case's answer, in the order of the suite."""
    answers: dict[str, Any] = {}
    for unit in units():
        answers |= run_unit(unit, bench, say)
    return answers


def run_unit(unit: Unit, bench: Bench, say: Say) -> dict[str, Any]:
    """The answers of one unit's cases; what it has started is ended."""
    answers: dict[str, Any] = {}
    try:
        for name, answer in unit.run(bench):
            say(name)
            answers[name] = answer
    finally:
        bench.end_all()
    return answers


def _source(*modules: ModuleType) -> str:
    return "".join(inspect.getsource(module) for module in modules)
