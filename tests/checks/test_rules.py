"""Every rule passes a right plan and finds fault with a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.judge import judge_stack
from infra.checks.rules import RULES
from infra.plan.compile import compile_stack
from infra.spec.load import load_stack
from tests.checks.cases_beyond_plans import MANIFEST_CASES, STACK_CASES
from tests.checks.rule_cases import (
    CATALOG,
    FILE,
    RuleCase,
    found_in,
    judged,
    right_document,
    rule_cases,
    rules_found_in,
)
from tests.plan.foreign.importing import judged as judged_recipe
from tests.plan_edits import PlanEdit, apply_edits, words_of

NAMED = [
    pytest.param(rule, case, id=f"{rule}-{index}")
    for rule, cases in rule_cases().items()
    for index, case in enumerate(cases)
]


# Judged by what a look at the operator's machine tells: `test_secret_files.py`.
LOOKED_AT = {"secret-file"}


def test_no_rule_lacks_its_cases() -> None:
    assert {*rule_cases(), *STACK_CASES, *MANIFEST_CASES, *LOOKED_AT} == set(RULES)


@pytest.mark.parametrize(("rule", "case"), NAMED)
def test_a_right_plan_passes(rule: str, case: RuleCase) -> None:
    right = case.right or case.stack
    assert right_document(right) != case.broken()
    assert rule not in rules_found_in(right)


@pytest.mark.parametrize(("rule", "case"), NAMED)
def test_a_broken_plan_is_found(rule: str, case: RuleCase) -> None:
    found = [problem for problem in found_in(case) if problem.rule == rule]
    assert found, f"{rule} finds nothing"
    fitting = [problem for problem in found if case.says in problem.what]
    assert fitting, [str(problem) for problem in found]
    problem = fitting[0]
    assert problem.severity == RULES[rule].severity
    assert problem.what.endswith(".")
    assert problem.fix.endswith(".")
    assert problem.file == FILE
    if case.process is not None:
        assert case.process in f"{problem.field} {problem.what}"


@pytest.mark.parametrize(("rule", "case"), NAMED)
def test_a_finding_names_what_is_wrong_in_the_case(rule: str, case: RuleCase) -> None:
    found = next(p for p in found_in(case) if p.rule == rule and case.says in p.what)
    text = f"{found.field} {found.what} {found.fix}".replace("_", "-").lower()
    assert [each for each in case.edits if not any(word in text for word in words_of(each))] == []


@pytest.mark.parametrize("rule", STACK_CASES)
def test_a_rule_about_what_a_stack_says(rule: str) -> None:
    case = STACK_CASES[rule]
    broken, right = (
        judge_stack(compile_stack(stack, catalog=CATALOG).plan, stack, CATALOG)
        for stack in (load_stack(case.stack, case.broken), load_stack(case.stack, case.right))
    )
    assert [p.rule for p in broken if case.says in p.what] == [rule]
    assert rule not in {problem.rule for problem in right}


@pytest.mark.parametrize("rule", MANIFEST_CASES)
def test_a_rule_about_what_a_manifest_says(rule: str, tmp_path: Path) -> None:
    case = MANIFEST_CASES[rule]
    broken, right = (
        judged_recipe(tmp_path, text, case.file).problems for text in (case.broken, case.right)
    )
    assert [p.rule for p in broken if case.says in p.what] == [rule]
    assert rule not in {problem.rule for problem in right}


def test_a_finding_stands_at_the_line_that_was_written() -> None:
    stack = load_stack("gb200-2p1d", ("defaults.gpu_memory_utilization=0.5",))
    plan = compile_stack(stack, catalog=CATALOG).plan
    found = [problem for problem in judge_stack(plan, stack, CATALOG) if problem.blocks]
    assert {problem.rule for problem in found} == {"weights-memory"}
    assert found[0].file == "stacks/gb200-2p1d.yaml"
    assert found[0].line == 9


def test_a_waived_finding_is_printed_and_does_not_block() -> None:
    word = "waive=[{rule: vision-nixl, reason: text only}]"
    stack = load_stack("gb200-2p1d", (word,))
    plan = compile_stack(stack, catalog=CATALOG).plan
    found = judge_stack(plan, stack, CATALOG)
    assert [(problem.rule, problem.waived) for problem in found] == [("vision-nixl", "text only")]
    assert not found[0].blocks


def test_a_waiver_of_a_rule_that_does_not_exist_is_an_error() -> None:
    stack = load_stack("h200-tp8", ("waive=[{rule: kv-memry, reason: because}]",))
    plan = compile_stack(stack, catalog=CATALOG).plan
    found = judge_stack(plan, stack, CATALOG)
    assert [problem.rule for problem in found] == ["unknown-waiver"]
    assert "kv-memory" in found[0].fix


@pytest.mark.parametrize(
    "path", ["s3://weights/kimi/nvfp4", "./kimi/nvfp4", "nvidia/Kimi-K2.5-NVFP4"]
)
def test_a_model_may_lie_anywhere_that_engines_read(path: str) -> None:
    document = right_document("gb200-2p1d")
    apply_edits(document, [PlanEdit(process="*", model=path)])
    assert "model-path" not in {problem.rule for problem in judged(document)}
