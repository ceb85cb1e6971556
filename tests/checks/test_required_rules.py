"""What `fab check` was asked to know is held by a rule, a check of the preflight, or a test of what we decide."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

import pytest
import yaml

from infra.checks.rules import RULES
from infra.launch.preflight.table import CHECKS
from infra.spec.load import PROJECT

FILE = PROJECT / "tests" / "cases" / "required_rules.yaml"
ASKED: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
ROWS = {**ASKED["numbered"], **ASKED["named"]}
NUM_ASKED = 67


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def _told_problems() -> frozenset[str]:
    """Words that the code of planning and provisioning hands over as a problem's rule."""
    texts: set[str] = set()
    for folder in ("plan", "provision"):
        for path in (PROJECT / "infra" / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
    return frozenset(texts)


def test_every_number_is_there() -> None:
    assert list(ASKED["numbered"]) == list(range(1, NUM_ASKED + 1))


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_what_was_asked_is_held_by_what_exists(asked: int | str) -> None:
    row = ROWS[asked]
    held = {key: row.get(key, []) for key in ("rules", "preflight", "problems", "tests")}
    assert any(held.values())
    assert set(row) <= {"asked", "held", "only", *held}
    assert set(held["rules"]) <= set(RULES)
    assert set(held["preflight"]) <= set(CHECKS)
    assert set(held["problems"]) <= _told_problems()
    for test in held["tests"]:
        file, _, function = test.partition("::")
        assert function in _functions(file), test


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_a_row_says_when_it_is_only_warned_of(asked: int | str) -> None:
    row = ROWS[asked]
    others = any(row.get(key) for key in ("preflight", "problems", "tests"))
    severities = {RULES[rule].severity for rule in row.get("rules", [])}
    is_warned = not others and severities == {"warning"}
    assert row.get("only") == ("warning" if is_warned else None)


def test_what_was_asked_of_sglang_is_held_by_rules_that_judge_it() -> None:
    rows = [row for row in ASKED["numbered"].values() if "SGLang" in row["asked"]]
    assert rows
    for rule in {rule for row in rows for rule in row["rules"]}:
        assert {"all", "sglang"} & set(RULES[rule].releases.replace(",", " ").split()), rule
