"""What `fab check` was asked to know is held by a rule, a check of the preflight, or a test of what we decide."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from infra.checks.rules import RULES
from infra.errors import StackError
from infra.launch.preflight.table import CHECKS
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml
from tests.checks.cases_beyond_plans import MANIFEST_CASES, STACK_CASES
from tests.checks.rule_cases import CATALOG, RuleCase, found_in, right_document, rule_cases
from tests.outages.replay import Finding, findings, findings_without
from tests.outages.reports import Reproduction

FILE = PROJECT / "tests" / "cases" / "required_rules.yaml"
NUM_ASKED = 67


class Shown(Reproduction):
    """A stack that cannot be placed, or hosts that a check of the preflight finds fault with.

    Args:
        by: the problem or the check.
        says: words of it.
    """

    by: str
    says: str


class Row(BaseModel):
    """One thing that was asked.

    Args:
        asked: in words; a named row says it by its name.
        held: what is held where that is less than what was asked, or how.
        only: `warning` where it is told and refused by nothing.
        rules: each has a case that is marked with this row.
        preflight: each has an entry of `shown`.
        problems: told while a stack is placed or an account is asked: in `shown`, or by one of the tests.
        tests: `file::function`, for what the compiler or the launcher alone decides.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    asked: str = ""
    held: str | None = None
    only: str | None = None
    rules: tuple[str, ...] = ()
    preflight: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    shown: tuple[Shown, ...] = Field(default=())


def _rows() -> tuple[Mapping[int, Row], Mapping[str, Row]]:
    document = read_yaml(FILE)
    numbered, named = (
        {key: Row.model_validate(row) for key, row in document[part].items()}
        for part in ("numbered", "named")
    )
    return numbered, named


NUMBERED, NAMED = _rows()
ROWS: Mapping[int | str, Row] = dict((*NUMBERED.items(), *NAMED.items()))
BEYOND_PLANS = {*STACK_CASES, *MANIFEST_CASES}
MARKED = [
    pytest.param(rule, case, id=f"{rule}-{index}")
    for rule, cases in rule_cases().items()
    for index, case in enumerate(cases)
    if case.asked or case.releases
]
SHOWN = [
    pytest.param(shown, id=f"{name}-{shown.by}")
    for name, row in ROWS.items()
    for shown in row.shown
]


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def _told_problems() -> frozenset[str]:
    """Words that the code of planning and provisioning hands over as a problem's rule."""
    return frozenset(
        node.value
        for folder in ("plan", "provision")
        for path in (PROJECT / "infra" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_every_number_is_there() -> None:
    assert list(NUMBERED) == list(range(1, NUM_ASKED + 1))


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_what_was_asked_is_held_by_what_exists(asked: int | str) -> None:
    row = ROWS[asked]
    assert row.rules or row.preflight or row.problems or row.tests
    assert set(row.rules) <= set(RULES)
    assert set(row.preflight) <= set(CHECKS)
    assert set(row.problems) <= _told_problems()
    for test in row.tests:
        file, _, function = test.partition("::")
        assert function in _functions(file), test


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_every_rule_of_a_row_has_a_case_of_what_was_asked(asked: int | str) -> None:
    row = ROWS[asked]
    marked = {rule for rule, cases in rule_cases().items() for c in cases if asked in c.asked}
    assert marked == set(row.rules) - BEYOND_PLANS
    assert {shown.by for shown in row.shown} <= {*row.preflight, *row.problems}
    assert set(row.preflight) <= {shown.by for shown in row.shown}
    if {*row.problems} - {shown.by for shown in row.shown}:
        assert row.tests


def test_no_case_is_marked_with_what_was_not_asked() -> None:
    marks = {asked for cases in rule_cases().values() for case in cases for asked in case.asked}
    assert marks <= set(ROWS)


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_a_row_says_when_it_is_only_warned_of(asked: int | str) -> None:
    row = ROWS[asked]
    severities = {RULES[rule].severity for rule in row.rules}
    is_warned = not (row.preflight or row.problems or row.tests) and severities == {"warning"}
    assert row.only == ("warning" if is_warned else None)


@pytest.mark.parametrize(("rule", "case"), MARKED)
def test_it_is_found_on_the_releases_that_the_case_states_and_on_no_other(
    rule: str, case: RuleCase
) -> None:
    found: list[str] = []
    passed: list[str] = []
    for version in _compiling(case.stack.partition("@")[0]):
        is_found = rule in {problem.rule for problem in found_in(case, version)}
        (found if is_found else passed).append(version)
    assert tuple(found) == (case.releases or (*found, *passed))


@cache
def _compiling(name: str) -> tuple[str, ...]:
    """The pinned releases of a stack's engine for which it can be compiled."""
    kept = []
    for version in CATALOG.releases(right_document(name)["engine"]["name"]):
        try:
            right_document(f"{name}@{version}")
        except StackError:
            continue
        kept.append(version)
    return tuple(kept)


@pytest.mark.parametrize("shown", SHOWN)
def test_what_no_rule_holds_is_found_and_gone_without_the_mistake(
    shown: Shown, tmp_path: Path
) -> None:
    (found,) = _of(findings(shown, tmp_path), shown)
    assert found.where
    assert found.fix
    assert _of(findings_without(shown, tmp_path), shown) == []


def _of(found: list[Finding], shown: Shown) -> list[Finding]:
    return [each for each in found if each.by == shown.by and shown.says in each.what][:1]


def test_what_was_asked_of_sglang_is_held_by_rules_that_judge_it() -> None:
    rows = [row for row in NUMBERED.values() if "SGLang" in row.asked]
    assert rows
    for rule in {rule for row in rows for rule in row.rules}:
        assert "sglang" in {each.engine for each in RULES[rule].releases}, rule
