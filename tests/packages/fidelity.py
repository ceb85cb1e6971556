"""What the recorded verdicts of released engines, the rules and the simulated engine say to the same commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from infra.catalog.load import Catalog
from infra.errors import Problem
from infra.packages.verdicts.ours import judged_with
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    compiled_plans,
    shipped_questions,
)
from infra.packages.verdicts.records import RECORDS, Record, Row, read_records
from infra.plan.process import Plan
from infra.rehearsal.engine.failures import Failed, Refused
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

CATALOG = Catalog()
REASONS = RECORDS / "reasons.yaml"
# Processes of an engine that its configuration has already left behind.
LATER = ("EngineCore", "Scheduler", "Worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One damaged command.

    Args:
        ours: what blocks it in `fab check`.
        simulated: why the simulated engine's configuration refuses it; empty when it is built, None for a router.
    """

    release: str
    row: Row
    ours: tuple[Problem, ...]
    simulated: str | None


@cache
def records() -> tuple[Record, ...]:
    return read_records()


@cache
def plans() -> Mapping[str, Plan]:
    return dict(compiled_plans(CATALOG))


@cache
def shipped() -> Mapping[tuple[str, ...], Question]:
    """Every command of every stack, by release and key."""
    return {
        (question.release, *question.key): question
        for stack, plan in plans().items()
        for question in shipped_questions(stack, plan, CATALOG)
    }


@cache
def damaged() -> Mapping[tuple[str, ...], Question]:
    """Every damaged command, by release and key."""
    return {
        (question.release, *question.key): question
        for stack, plan in plans().items()
        for question in broken_questions(stack, plan, CATALOG)
    }


def compare_broken(folder: Path) -> Iterator[Compared]:
    """Every recorded damaged command, judged by the rules and by the simulated engine.

    Args:
        folder: an empty one, for checkpoints.
    """
    for stack, plan in plans().items():
        write_checkpoints(plan, CATALOG, folder / stack)
    for record in records():
        for row in record.broken:
            if not row.verdict.is_answered:
                continue
            question = damaged()[(record.release, *row.key)]
            plan = plans()[row.stack]
            yield Compared(
                release=record.release,
                row=row,
                ours=judged_with(plan, row.process, question.argv, question.env, CATALOG),
                simulated=simulated(plan, question, folder / row.stack),
            )


def simulated(plan: Plan, question: Question, folder: Path) -> str | None:
    """Why the simulated engine's configuration refuses a command; empty when it is built, None for a router."""
    process = next(process for process in plan.processes if process.id == question.process)
    if process.kind == "router":
        return None
    process = replace(process, argv=question.argv, env=question.env)
    try:
        configured(plan, process, engine_world(plan, process, CATALOG, folder), folder)
    except Refused as refused:
        return one_line(refused.text.splitlines()[-1], folder)
    except Failed as failed:
        return (
            "" if failed.process in LATER else one_line(f"{failed.kind}: {failed.message}", folder)
        )
    except ZeroDivisionError:
        return "ZeroDivisionError"
    return ""


def one_line(text: str, folder: Path) -> str:
    return " ".join(text.replace(str(folder), "/models").split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why a verdict may differ from the release's own.

    Args:
        machine: refusals that are due to the machine that was asked and not to the release, as patterns of `release
            change`, with reasons.
        later: rule → why the release's configuration does not see what the rule refuses.
        rules: commands that the release refuses and the rules do not, as patterns of `release change`, with reasons.
        simulator: likewise, where the simulated engine's verdict is another one.
    """

    machine: Sequence[Mapping[str, str]]
    later: Mapping[str, str]
    rules: Sequence[Mapping[str, str]]
    simulator: Sequence[Mapping[str, str]]


@cache
def reasons() -> Reasons:
    document = yaml.safe_load(REASONS.read_text(encoding="utf-8"))
    return Reasons(**document)


def reason_for(compared: Compared, listed: Sequence[Mapping[str, str]]) -> str:
    """The reason of the first pattern that fits the command; empty when none does."""
    named = f"{compared.release} {compared.row.change}"
    return next((each["reason"] for each in listed if re.search(each["command"], named)), "")


def machines_refusal(compared: Compared) -> str:
    """Why a refusal says nothing about the release: the machine that was asked lacked something; else empty."""
    return reason_for(compared, reasons().machine) if compared.row.verdict.is_refused else ""


def rules_differ(compared: Compared) -> str:
    """Why the rules' verdict is wrong or another one than the release's: a reason, `unexplained …`, or nothing."""
    if not compared.row.verdict.is_accepted:
        if compared.ours or machines_refusal(compared):
            return ""
        return reason_for(compared, reasons().rules) or "unexplained: no rule refuses it"
    unexplained = [p.rule for p in compared.ours if p.rule not in reasons().later]
    if unexplained:
        return f"unexplained: {', '.join(unexplained)}"
    return "; ".join(dict.fromkeys(reasons().later[p.rule] for p in compared.ours))


def simulator_differs(compared: Compared) -> str:
    """Likewise for the simulated engine."""
    agree = compared.row.verdict.is_accepted == (not compared.simulated)
    if compared.simulated is None or agree or machines_refusal(compared):
        return ""
    return reason_for(compared, reasons().simulator) or "unexplained"
