"""All rules applied to a plan; findings placed in the file that the operator wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from infra.catalog.load import Catalog
from infra.checks.rules import RULES
from infra.checks.view import Finding, PlanView, SecretFile, Surroundings, view_plan
from infra.errors import Problem
from infra.plan.process import Plan
from infra.spec.load import LoadedStack
from infra.spec.nearest import nearest
from infra.spec.secret_file import lies_beside
from infra.spec.told_once import role_of, told_once

# What nobody renders or starts, whatever else is wrong with a plan: it says two things, or gives its hosts away.
NEVER_MADE = (
    "derived-field", "host-mount", "host-program", "host-environment", "host-remote-code",
    "secret-elsewhere", "token-endpoint", "edge-paths", "edge-secrets",
)  # fmt: skip


def judge_stack(
    plan: Plan,
    stack: LoadedStack,
    catalog: Catalog,
    secret_files: Mapping[str, SecretFile] = MappingProxyType({}),
) -> tuple[Problem, ...]:
    """Every finding about a compiled stack, at the line that was written, by line.

    Args:
        plan: compiled from the stack.
        stack: where the lines are.
        catalog: what is true of the world.
        secret_files: what a look at the operator's machine told; nothing where no look was taken.
    """
    around = Surroundings(spec=stack.spec, secret_files=secret_files)
    view = view_plan(plan, catalog, around)
    role_by_process = {process.id: process.role for process in plan.processes}
    rows = [
        (
            _in_stack(rule, finding, stack),
            role_of(finding.field) or role_by_process.get(finding.process or ""),
        )
        for rule, finding in find_all(view)
    ]
    problems = [*_once_per_field(rows), *_unknown_waivers(stack)]
    return tuple(sorted(problems, key=lambda p: (p.severity, p.file or "", p.line or 0)))


def judge_plan(plan: Plan, file: str, catalog: Catalog) -> tuple[Problem, ...]:
    """Every finding about a plan document, errors first."""
    view = _view_document(plan, file, catalog)
    problems = [_in_plan(rule, finding, file) for rule, finding in find_all(view)]
    return tuple(sorted(problems, key=lambda problem: problem.severity))


def never_made(plan: Plan, file: str, catalog: Catalog) -> tuple[Problem, ...]:
    """What of a plan document is neither rendered nor rehearsed, whatever the other rules say."""
    view = _view_document(plan, file, catalog)
    return tuple(
        _in_plan(name, finding, file)
        for name in NEVER_MADE
        for finding in RULES[name].findings(view)
    )


def _view_document(plan: Plan, file: str, catalog: Catalog) -> PlanView:
    """A plan document as rules see it, with where the files of its secrets lie."""
    elsewhere = (
        name
        for name, reference in plan.secrets.items()
        if "file" in reference and not lies_beside(reference["file"], Path(file))
    )
    return view_plan(plan, catalog, Surroundings(secrets_elsewhere=frozenset(elsewhere)))


def without_consequences(
    placing: tuple[Problem, ...], rules: tuple[Problem, ...]
) -> tuple[Problem, ...]:
    """All of them, but for what rules miss of a plan because a line of the stack is missing: that line is one mistake.

    Args:
        placing: problems of resolving and placing the stack.
        rules: findings about what could be compiled of it all the same.
    """
    missing = {problem.field for problem in placing if problem.rule.startswith("missing-")}
    return (*placing, *(problem for problem in rules if problem.field not in missing))


def find_all(view: PlanView) -> list[tuple[str, Finding]]:
    """(rule id, finding) of every rule that holds for the plan's release, in the order of `RULES`."""
    return [(name, finding) for name, rule in RULES.items() for finding in rule.findings(view)]


def _once_per_field(found: list[tuple[Problem, str | None]]) -> list[Problem]:
    """A field that is wrong is wrong on every rank: the first finding speaks for the others."""
    first: dict[tuple[str, str], Problem] = {}
    facts: dict[tuple[str, str], set[str]] = {}
    roles: dict[tuple[str, str], dict[str | None, None]] = {}
    for problem, role in found:
        key = (problem.rule, problem.field)
        first.setdefault(key, problem)
        facts.setdefault(key, set()).add(problem.what)
        roles.setdefault(key, {})[role] = None
    rows = []
    for key, problem in first.items():
        others = len(facts[key]) - 1
        said = replace(problem, what=f"{problem.what} (and {others} more)") if others else problem
        # texts of their own name their roles
        rows += [(said, None if others else role) for role in roles[key]]
    return told_once(rows)


def _in_stack(name: str, finding: Finding, stack: LoadedStack) -> Problem:
    """A finding at the line of the stack that would mend it; waived when the stack says so."""
    field = stack.written_field(finding.field)
    place = stack.place(field)
    return Problem(
        rule=name,
        severity=RULES[name].severity,
        field=field,
        what=finding.what,
        fix=finding.fix,
        file=place.file,
        line=place.line,
        waived=next((waiver.reason for waiver in stack.spec.waive if waiver.rule == name), None),
    )


def _in_plan(name: str, finding: Finding, file: str) -> Problem:
    """A finding at the process of a plan document."""
    return Problem(
        rule=name,
        severity=RULES[name].severity,
        field=f"{finding.process} {finding.field}" if finding.process else finding.field,
        what=finding.what,
        fix=finding.fix,
        file=file,
    )


def _unknown_waivers(stack: LoadedStack) -> list[Problem]:
    found = []
    for index, waiver in enumerate(stack.spec.waive):
        if waiver.rule not in RULES:
            place = stack.place(f"waive.{index}.rule")
            found.append(
                Problem(
                    rule="unknown-waiver",
                    severity="error",
                    field=f"waive.{index}.rule",
                    what=f"There is no rule {waiver.rule}.",
                    fix=nearest(waiver.rule, RULES),
                    file=place.file,
                    line=place.line,
                )
            )
    return found
