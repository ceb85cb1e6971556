"""Every place where the simulated engine refuses is one that a rule says before, or has a reason why none does."""

from __future__ import annotations

import ast
import json
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from infra.checks.rules import RULES
from infra.packages.verdicts.damage import Mutant, mutants
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.process import Plan, Process
from infra.rehearsal.engine.failures import Failed, Refused
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml
from tests.checks.cases_beyond_plans import MANIFEST_CASES
from tests.checks.rule_cases import CATALOG, rule_cases
from tests.checks.rule_cases import judged as judged_document
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

ENGINE = PROJECT / "infra" / "rehearsal" / "engine"
DOCUMENT: dict[str, Any] = read_yaml(PROJECT / "tests" / "cases" / "refusal_sites.yaml")
SITES: dict[str, dict[str, list[list[str] | str]]] = DOCUMENT["sites"]
REASONS: dict[str, str] = DOCUMENT["reasons"]
# What tells a refusal to the other side, and leaves.
REFUSING = "_refuse"


@cache
def raises(module: str) -> dict[str, list[int]]:
    """Function, with its class or what holds it → lines of what it raises, in their order."""
    found: dict[str, list[int]] = {}
    tree = ast.parse((ENGINE / f"{module}.py").read_text(encoding="utf-8"))
    for name, function in _functions(tree, ""):
        lines = sorted(node.lineno for node in _own_nodes(function) if _is_refusal(node))
        if lines and not name.endswith(f".{REFUSING}"):
            found[name] = lines
    return found


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}.{child.name}".lstrip(".")
            if not isinstance(child, ast.ClassDef):
                yield name, child
        yield from _functions(child, name)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _is_refusal(node: ast.AST) -> TypeGuard[ast.Raise | ast.Call]:
    if isinstance(node, ast.Raise):
        return node.exc is not None
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == REFUSING


def modules() -> list[str]:
    listed = {name for names in DOCUMENT["modules"].values() for name in names}
    found = {path.stem for path in ENGINE.glob("*.py") if raises(path.stem)}
    assert listed <= found
    return sorted(found - listed)


def test_every_module_that_refuses_is_listed() -> None:
    assert modules() == sorted(SITES)
    assert set(DOCUMENT["modules"]) <= set(REASONS)


@pytest.mark.parametrize("module", SITES)
def test_every_refusal_has_rules_or_a_reason(module: str) -> None:
    rows = {function: len(listed) for function, listed in SITES[module].items()}
    assert rows == {function: len(lines) for function, lines in raises(module).items()}
    for listed in SITES[module].values():
        for row in listed:
            if isinstance(row, str):
                assert row in REASONS
            else:
                assert row
                assert set(row) <= set(RULES)
                assert set(row) & {*rule_cases(), *MANIFEST_CASES}


def test_no_reason_is_without_use() -> None:
    used = {
        r
        for rows in SITES.values()
        for listed in rows.values()
        for r in listed
        if isinstance(r, str)
    }
    assert used | set(DOCUMENT["modules"]) == set(REASONS)


SHOWN = [
    pytest.param(row, id=f"{row['module']}-{row['function']}-{row['index']}")
    for row in DOCUMENT["shown"]
]


@pytest.mark.parametrize("row", SHOWN)
def test_a_command_that_ends_there_is_refused_before(row: dict[str, Any], tmp_path: Path) -> None:
    plan = _plan(row["stack"])
    process = next(p for p in plan.processes if p.id == row["process"])
    mutant = next(m for m in mutants(process.argv, process.env) if m.change == row["change"])
    assert _site(plan, process, mutant, tmp_path) == (
        row["module"],
        raises(row["module"])[row["function"]][row["index"]],
    )
    wanted = SITES[row["module"]][row["function"]][row["index"]]
    assert isinstance(wanted, list)
    assert _refusing(plan, process, mutant) & set(wanted)


@cache
def _plan(name: str) -> Plan:
    own = PROJECT / "tests" / "stacks" / f"{name}.yaml"
    return compile_file(str(own) if own.exists() else name, catalog=CATALOG).plan


def _site(plan: Plan, process: Process, mutant: Mutant, folder: Path) -> tuple[str, int]:
    """Module and line of the raise at which the engine leaves."""
    write_checkpoints(plan, CATALOG, folder)
    mutated = replace(process, argv=mutant.argv, env=mutant.env)
    with pytest.raises((Failed, Refused)) as caught:
        configured(plan, mutated, engine_world(plan, mutated, CATALOG, folder), folder)
    failure: BaseException = caught.value
    while isinstance(failure.__cause__, Failed | Refused):
        failure = failure.__cause__
    frames = traceback.extract_tb(failure.__traceback__)
    frame = [each for each in frames if Path(each.filename).resolve().parent == ENGINE][-1]
    return Path(frame.filename).stem, frame.lineno or 0


def _refusing(plan: Plan, process: Process, mutant: Mutant) -> set[str]:
    document = json.loads(json.dumps(plan_document(plan)))
    row = next(each for each in document["processes"] if each["id"] == process.id)
    row["argv"], row["env"] = list(mutant.argv), dict(mutant.env)
    return {problem.rule for problem in judged_document(document) if problem.blocks}
