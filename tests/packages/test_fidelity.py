"""The rules and the simulated engine against what the released engines themselves said (`tests/cases/verdicts/`).

The verdicts are recorded by `scripts/verify-engines` alone. `docs/fidelity.md` is written from them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infra.packages.verdicts.newer import newer_releases
from infra.packages.verdicts.questions import Question, kinds_of_processes
from infra.packages.verdicts.records import Record
from infra.packages.verdicts.rows import KIND
from infra.spec.load import PROJECT
from tests.packages.fidelity import (
    CATALOG,
    NOT_OF_A_RELEASE,
    Compared,
    Excuse,
    compare_broken,
    damaged,
    damaged_for_newer,
    machines_refusal,
    names_differ,
    newer,
    plans,
    reasons,
    records,
    rules_differ,
    shipped,
    shipped_to_newer,
    simulated,
    simulator_differs,
    simulator_names_differ,
)
from tests.packages.fidelity_page import fidelity_page
from tests.packages.judged import judged_with
from tests.rehearsal.engine.shipped import write_checkpoints

PAGE = PROJECT / "docs" / "fidelity.md"
ASK_AGAIN = "scripts/verify-engines --release {release}, then read the difference"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Compared, ...]:
    return tuple(compare_broken(tmp_path_factory.mktemp("checkpoints")))


def test_every_pinned_release_and_the_newer_ones_have_a_record() -> None:
    asked = {f"{engine}-{version}" for engine, version in newer_releases()}
    pinned = {question.release for question in shipped().values()}
    assert {record.release for record in records()} == pinned | asked


def test_every_command_that_was_asked_was_accepted_by_its_release() -> None:
    """The very command that a stack renders today has a verdict, a good one."""
    verdicts = {
        (record.release, *row.key, row.digest): row.verdict
        for record in pinned_records()
        for row in record.shipped
    }
    wanted = {(*key, question.digest) for key, question in shipped().items()}
    assert set(verdicts) == wanted, ASK_AGAIN.format(release=min(set(verdicts) ^ wanted)[0])
    assert [(key, verdict.says) for key, verdict in verdicts.items() if verdict.says] == []


@pytest.mark.slow  # every stack is compiled for every newer release
def test_every_command_to_a_newer_release_was_asked_about() -> None:
    asked = {
        (record.release, *row.key, row.digest)
        for record in records()
        if record.release in newer()
        for row in record.shipped
    }
    wanted = {(*key, question.digest) for key, question in shipped_to_newer().items()}
    assert asked == wanted, ASK_AGAIN.format(release=min(asked ^ wanted)[0])


def test_recorded_damage_is_damage_to_todays_commands() -> None:
    for record in pinned_records():
        assert stale(record, damaged()) == [], ASK_AGAIN.format(release=record.release)
    assert sum(len(record.broken) for record in records()) >= 200


def test_a_record_names_what_answered_and_holds_no_folder_of_a_machine() -> None:
    for record in records():
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in record.wheels.values())
        version = record.release.removeprefix(f"{_package(record.release)}-")
        assert any(f"-{version}-" in wheel for wheel in record.wheels)
        for row in record.rows:
            assert row.verdict.is_answered, ASK_AGAIN.format(release=record.release)
            assert row.verdict.level in {"parse", "config", "checks"}
            assert "/tmp/" not in row.verdict.says
            assert "No module named" not in row.verdict.says or "ray" in row.verdict.says


def test_the_simulated_engine_accepts_what_the_releases_accept(tmp_path: Path) -> None:
    for record in pinned_records():
        for stack in sorted({row.stack for row in record.shipped}):
            plan, folder = plans()[stack], tmp_path / record.release / stack
            write_checkpoints(plan, CATALOG, folder)
            for row in record.shipped:
                if row.stack == stack:
                    question = shipped()[(record.release, *row.key)]
                    assert not simulated(plan, question, folder), (row.key, record.release)


def test_the_rules_accept_what_the_releases_accept() -> None:
    for record in pinned_records():
        for row in record.shipped:
            question = shipped()[(record.release, *row.key)]
            plan = plans()[row.stack]
            problems = judged_with(plan, row.process, question.argv, question.env, CATALOG)
            assert row.verdict.is_accepted == (not problems), (record.release, row.key, problems)


@pytest.mark.slow  # likewise
def test_recorded_damage_for_newer_releases_is_damage_to_todays_commands_and_has_every_row() -> (
    None
):
    for record in records():
        if record.release in newer():
            asked = damaged_for_newer()
            assert stale(record, asked) == [], ASK_AGAIN.format(release=record.release)
            rows = {key for key, question in asked.items() if question.kind == KIND}
            missing = {key for key in rows if key[0] == record.release}
            missing -= {(record.release, *row.key) for row in record.broken}
            assert missing == set(), ASK_AGAIN.format(release=record.release)


@pytest.mark.slow  # likewise
def test_newer_releases_the_rules_and_the_simulated_engine_say_the_same_of_every_stack(
    tmp_path: Path,
) -> None:
    for release, moved in newer().items():
        record = next(each for each in records() if each.release == release)
        for stack, plan in moved.items():
            folder = tmp_path / release / stack
            write_checkpoints(plan, CATALOG, folder)
            kinds = {process.id for process in kinds_of_processes(plan)}
            first = next(process for process in plan.processes if process.kind == "engine")
            blocked = judged_with(plan, first.id, first.argv, first.env, CATALOG)
            assert [p for p in blocked if p.rule not in NOT_OF_A_RELEASE] == [], (release, stack)
            for row in record.shipped:
                if row.stack == stack:
                    assert row.verdict.is_accepted, (release, row.key, row.verdict.says)
                    question = shipped_to_newer()[(release, *row.key)]
                    assert row.process not in kinds or not simulated(plan, question, folder)


@pytest.mark.slow  # some hundred damaged plans are judged, each as a whole
def test_the_rules_refuse_what_the_releases_refuse(compared: tuple[Compared, ...]) -> None:
    unexplained = [
        (each.release, each.row.key, each.row.verdict.says, [str(p) for p in each.ours])
        for each in compared
        if rules_differ(each).startswith("unexplained")
    ]
    assert unexplained == []


@pytest.mark.slow  # likewise
def test_the_simulated_engine_refuses_what_the_releases_refuse(
    compared: tuple[Compared, ...],
) -> None:
    unexplained = [
        (each.release, each.row.key, each.row.verdict.says, each.simulated)
        for each in compared
        if simulator_differs(each) == "unexplained"
    ]
    assert unexplained == []


@pytest.mark.slow  # likewise
def test_a_rule_names_the_flag_that_the_releases_refusal_names(
    compared: tuple[Compared, ...],
) -> None:
    unexplained = [
        (each.release, each.row.key, each.row.verdict.says, difference, [str(p) for p in each.ours])
        for each in compared
        if (difference := names_differ(each)).startswith("unexplained")
    ]
    assert unexplained == []


@pytest.mark.slow  # likewise
def test_the_simulated_engine_names_the_flag_that_the_releases_refusal_names(
    compared: tuple[Compared, ...],
) -> None:
    unexplained = [
        (each.release, each.row.key, each.row.verdict.says, each.simulated, difference)
        for each in compared
        if (difference := simulator_names_differ(each)).startswith("unexplained")
    ]
    assert unexplained == []


@pytest.mark.slow  # likewise
def test_no_reason_is_kept_for_a_difference_that_is_gone(compared: tuple[Compared, ...]) -> None:
    used = Counter(
        part
        for each in compared
        for part in (
            machines_refusal(each),
            rules_differ(each),
            simulator_differs(each),
            simulator_names_differ(each),
        )
        if part
    )
    kept = reasons()
    listed = [
        each["reason"]
        for each in (*kept.machine, *kept.rules, *kept.simulator, *kept.simulator_names)
    ]
    assert [reason for reason in listed if reason not in "; ".join(used)] == []
    refused_later = {
        (problem.rule, each.damaged)
        for each in compared
        if each.row.verdict.is_accepted
        for problem in each.ours
    }
    said_otherwise = {
        (problem.rule, each.damaged) for each in compared if each.misses for problem in each.ours
    }
    assert pairs(reasons().later) - refused_later == set()
    assert pairs(reasons().names) - said_otherwise == set()


@pytest.mark.slow  # likewise
def test_the_page_is_what_the_records_say(
    compared: tuple[Compared, ...], *, update_golden: bool
) -> None:
    text = fidelity_page(records(), compared)
    if update_golden:
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "run with --update-golden, then read the diff"


def stale(record: Record, asked: Mapping[tuple[str, ...], Question]) -> list[tuple[str, str, str]]:
    """Rows of damaged commands that nobody would ask about today."""
    return [
        row.key
        for row in record.broken
        if (question := asked.get((record.release, *row.key))) is None
        or question.digest != row.digest
    ]


def pinned_records() -> tuple[Record, ...]:
    """Those of releases that a stack pins."""
    pinned = {question.release for question in shipped().values()}
    return tuple(record for record in records() if record.release in pinned)


def pairs(excuses: Sequence[Excuse]) -> set[tuple[str, str]]:
    """Each rule with each flag or variable of whose damage an excuse speaks."""
    return {(each.rule, damaged) for each in excuses for damaged in each.damaged}


def _package(release: str) -> str:
    return re.sub(r"-\d.*", "", release)
