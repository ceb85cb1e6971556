"""What the recorded verdicts of released engines, the rules and the simulated engine say to the same commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.engines.registry import ENGINES
from infra.errors import Problem
from infra.packages.verdicts.newer import (
    broken_elsewhere,
    moved_plans,
    newer_releases,
    row_commands,
    shipped_elsewhere,
)
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    compiled_plans,
    shipped_questions,
)
from infra.packages.verdicts.records import RECORDS, Record, Row, read_record
from infra.plan.process import Plan
from infra.rehearsal.engine.failures import Failed, Refused
from infra.spec.plain_yaml import read_yaml
from tests.packages.fidelity_names import named_in, names_the_same
from tests.packages.judged import judged_with
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

CATALOG = Catalog()
REASONS = RECORDS / "reasons.yaml"
# What is refused on newer releases because of the catalogue: it has no image of SGLang 0.5.23 for AMD.
NOT_OF_A_RELEASE = frozenset({"missing-image"})
# Processes of an engine that its configuration has already left behind.
LATER = ("EngineCore", "Scheduler", "Worker")
# What is recorded of an error without words: the statement that failed.
_STATEMENT = re.compile(r" \[(?!type=)[^\]]*\]\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One damaged command.

    Args:
        damaged: the flag or variable that is damaged.
        ours: what blocks it in `fab check`.
        simulated: why the simulated engine's configuration refuses it; empty when it is built, None for a router.
        named: what the release's refusal names, or what is damaged; see `named_in`.
        misses: the names of it that `fab check` has not; empty when it refuses nothing.
        simulator_misses: what the release's refusal names and the simulated engine's does not; likewise.
    """

    release: str
    row: Row
    damaged: str
    ours: tuple[Problem, ...]
    simulated: str | None
    named: tuple[frozenset[str], ...]
    misses: tuple[frozenset[str], ...]
    simulator_misses: tuple[frozenset[str], ...]


@cache
def records() -> tuple[Record, ...]:
    return tuple(read_record(path) for path in sorted(RECORDS.glob("*.json")))


@cache
def plans() -> Mapping[str, Plan]:
    return dict(compiled_plans(CATALOG))


@cache
def shipped() -> Mapping[tuple[str, ...], Question]:
    """Every command of every stack to a release that it pins, by release and key."""
    return {
        (question.release, *question.key): question
        for stack, plan in plans().items()
        for question in shipped_questions(stack, plan, CATALOG)
    }


@cache
def damaged() -> Mapping[tuple[str, ...], Question]:
    """Every damaged command to a release that a stack pins, by release and key."""
    return {
        (question.release, *question.key): question
        for stack, plan in plans().items()
        for question in broken_questions(stack, plan, CATALOG)
    }


@cache
def newer() -> Mapping[str, Mapping[str, Plan]]:
    """Release that no stack pins → stack → its plan for that release."""
    return {
        f"{engine}-{version}": dict(moved_plans(CATALOG, engine, version))
        for engine, version in newer_releases()
    }


@cache
def shipped_to_newer() -> Mapping[tuple[str, ...], Question]:
    """Every command of every stack to newer releases, by release and key."""
    return {
        (question.release, *question.key): question
        for moved in newer().values()
        for question in shipped_elsewhere(moved, CATALOG)
    }


@cache
def damaged_for_newer() -> Mapping[tuple[str, ...], Question]:
    """Every damaged command to newer releases and one for each row of combinations, by release and key."""
    return {
        (question.release, *question.key): question
        for moved in newer().values()
        for question in (*broken_elsewhere(moved, CATALOG), *row_commands(moved, CATALOG))
    }


def plan_of(release: str, stack: str) -> Plan:
    """The plan whose command a release was asked about."""
    return newer().get(release, {}).get(stack) or plans()[stack]


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
            asked = damaged_for_newer() if record.release in newer() else damaged()
            question = asked[(record.release, *row.key)]
            plan = plan_of(record.release, row.stack)
            judged = judged_with(plan, row.process, question.argv, question.env, CATALOG)
            ours = tuple(each for each in judged if each.rule not in NOT_OF_A_RELEASE)
            named = named_or_damaged(row.verdict.says, question)
            played = simulated(plan, question, folder / row.stack)
            yield Compared(
                release=record.release,
                row=row,
                damaged=question.subject,
                ours=ours,
                simulated=played,
                named=named,
                misses=_missed(named, ours, question) if ours else (),
                simulator_misses=_left_out(row.verdict.says, played, question) if played else (),
            )


def named_or_damaged(says: str, question: Question) -> tuple[frozenset[str], ...]:
    """What a refusal names; of flags and variables, the damaged one will do in place of what it led to."""
    flags = flags_of(question)
    first, *others = named_in(says, flags, question.env) or (frozenset[str](),)
    if not first:
        return ()
    known = flags.by_option.get(question.subject)
    damaged = question.subject.lstrip("-") if known is None else known[0].name
    return (first | {damaged}, *others)


def flags_of(question: Question) -> FlagCatalogue:
    """The flags of the release that answers."""
    if question.package in ENGINES:
        release = CATALOG.release(question.package, question.version)
        return CATALOG.flags(release.flags_catalogue)
    return CATALOG.flags(question.release)


def _missed(
    named: Sequence[frozenset[str]], ours: Sequence[Problem], question: Question
) -> tuple[frozenset[str], ...]:
    """What the release names, and none of our refusals does."""
    text = "\n".join(f"{problem.field} {problem.what} {problem.fix}" for problem in ours)
    fields = next((each.owned_flags for n, each in ENGINES.items() if n == question.package), {})
    flags = flags_of(question)
    return tuple(each for each in named if not names_the_same(text, (each,), flags, fields))


def _left_out(says: str, played: str, question: Question) -> tuple[frozenset[str], ...]:
    """What the release's refusal names, and the simulated engine's does not."""
    flags = flags_of(question)
    named = named_in(_STATEMENT.sub("", says), flags, question.env)
    ours = frozenset().union(*named_in(played, flags, question.env))
    return tuple(
        each for each in named if not each & ours and not names_the_same(played, (each,), flags, {})
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
        return one_line(f"error: {refused}", folder)
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
class Excuse:
    """One rule, and of which flags and variables damaged it may say something else than the release."""

    rule: str
    damaged: frozenset[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why a verdict may differ from the release's own.

    Args:
        machine: refusals that are due to the machine that was asked and not to the release, as patterns of `release
            change`, with reasons.
        later: rules with the flags and variables whose damage they refuse, and why the release's configuration does
            not see it.
        names: rules with the flags and variables of whose damage they say it in other words, and why.
        rules: commands that the release refuses and the rules do not, as patterns of `release change`, with reasons.
        simulator: likewise, where the simulated engine's verdict is another one.
        simulator_names: likewise, where its refusal leaves out what the release's names.
    """

    machine: Sequence[Mapping[str, str]]
    later: Sequence[Excuse]
    names: Sequence[Excuse]
    rules: Sequence[Mapping[str, str]]
    simulator: Sequence[Mapping[str, str]]
    simulator_names: Sequence[Mapping[str, str]]


@cache
def reasons() -> Reasons:
    document = read_yaml(REASONS)
    for kind in ("later", "names"):
        document[kind] = [
            Excuse(rule=each["rule"], damaged=frozenset(each["damaged"]), reason=each["reason"])
            for each in document[kind]
        ]
    return Reasons(**document)


def excused(rule: str, damaged: str, listed: Sequence[Excuse]) -> str:
    """Why a rule may say something else when that is damaged; empty when nothing is listed."""
    return next((e.reason for e in listed if e.rule == rule and damaged in e.damaged), "")


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
    found = {p.rule: excused(p.rule, compared.damaged, reasons().later) for p in compared.ours}
    unexplained = [rule for rule, reason in found.items() if not reason]
    if unexplained:
        return f"unexplained: {', '.join(unexplained)} when {compared.damaged} is damaged"
    return "; ".join(dict.fromkeys(found.values()))


def names_differ(compared: Compared) -> str:
    """Why our refusal does not name what the release's does: a reason, `unexplained …`, or nothing."""
    if not compared.misses or machines_refusal(compared):
        return ""
    found = [excused(p.rule, compared.damaged, reasons().names) for p in compared.ours]
    missed = ", ".join(" or ".join(sorted(names)) for names in compared.misses)
    return next(filter(None, found), f"unexplained: it does not name {missed}")


def simulator_differs(compared: Compared) -> str:
    """Likewise for the simulated engine."""
    agree = compared.row.verdict.is_accepted == (not compared.simulated)
    if compared.simulated is None or agree or machines_refusal(compared):
        return ""
    return reason_for(compared, reasons().simulator) or "unexplained"


def simulator_names_differ(compared: Compared) -> str:
    """Why the simulated engine's refusal leaves out what the release's names: a reason, `unexplained …`, or nothing."""
    if not compared.simulator_misses or machines_refusal(compared):
        return ""
    missed = ", ".join(" or ".join(sorted(names)) for names in compared.simulator_misses)
    listed = reasons().simulator_names
    return reason_for(compared, listed) or f"unexplained: it does not name {missed}"
