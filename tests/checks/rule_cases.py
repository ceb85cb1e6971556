"""Every rule's cases as data (`tests/cases/rules/`): a plan that it finds fault with, beside one that it passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan
from infra.errors import Problem
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml
from tests.plan_edits import Document, PlanEdit, apply_edits

FOLDER = PROJECT / "tests" / "cases" / "rules"
CATALOG = Catalog()
FILE = "plan.json"


class RuleCase(BaseModel):
    """A plan that a rule finds fault with.

    Args:
        stack: what it is made of; `name@version` for another release of its engine.
        edits: what is wrong with it; none where the rule holds for every plan of the kind.
        right: the stack that the rule passes; None for the same one without the edits.
        says: words of the finding.
        process: the process that is named, when one is.
        asked: what of `tests/cases/required_rules.yaml` it shows, by number or name.
        releases: the pinned releases of the engine on which it is found; None for all on which the stack compiles.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stack: str
    edits: tuple[PlanEdit, ...] = ()
    right: str | None = None
    says: str
    process: str | None = None
    asked: tuple[int | str, ...] = ()
    releases: tuple[str, ...] | None = None

    def broken(self, version: str | None = None) -> Document:
        """The plan document with its mistake.

        Args:
            version: of the engine, in place of the case's own.
        """
        stack = self.stack if version is None else f"{self.stack.partition('@')[0]}@{version}"
        document = right_document(stack)
        apply_edits(document, self.edits)
        return document


@cache
def rule_cases() -> Mapping[str, tuple[RuleCase, ...]]:
    """Rule → its cases, of every file.

    Raises:
        AssertionError: a rule stands in two files.
    """
    found: dict[str, tuple[RuleCase, ...]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        rows: dict[str, Any] = read_yaml(path)
        assert not set(rows) & set(found), f"{path.name} repeats a rule of another file"
        found |= {rule: tuple(map(RuleCase.model_validate, cases)) for rule, cases in rows.items()}
    return found


def right_document(stack: str) -> Document:
    """The plan document of a stack, the caller's to change."""
    document: Document = json.loads(_compiled(stack))
    return document


@cache
def _compiled(stack: str) -> str:
    name, at, version = stack.partition("@")
    sets = (f"engine.version={version}",) if at else ()
    return json.dumps(plan_document(compile_file(name, catalog=CATALOG, sets=sets).plan))


def found_in(case: RuleCase, version: str | None = None) -> tuple[Problem, ...]:
    """What all rules find in the plan with the case's mistake: several tests look at the same.

    Args:
        version: of the engine, in place of the case's own.
    """
    own = case.stack.partition("@")[2]
    return _found_in(case.model_dump_json(), None if version == own else version)


@cache
def _found_in(case: str, version: str | None) -> tuple[Problem, ...]:
    return tuple(judged(RuleCase.model_validate_json(case).broken(version)))


@cache
def rules_found_in(stack: str) -> frozenset[str]:
    """The rules that find something in a stack as it is."""
    return frozenset(problem.rule for problem in judged(right_document(stack)))


def judged(document: Document) -> list[Problem]:
    """What `fab check --plan` says of a document."""
    return list(judge_plan(parse_plan(document, FILE), FILE, CATALOG))
