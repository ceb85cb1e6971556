"""What `fab check` says to a command that a released package was asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan
from infra.errors import InfraError, Problem
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.plan.process import Plan


def judged_with(
    plan: Plan, process: str, argv: tuple[str, ...], env: Mapping[str, str], catalog: Catalog
) -> tuple[Problem, ...]:
    """What blocks a plan in which one process has another command and environment.

    A plan that cannot be read is one problem, `plan-document`. What is written beside the command (ports, ranks) stays
    as it was: that it differs is no judgement of the command.
    """
    other = tuple(
        replace(each, argv=argv, env=env) if each.id == process else each for each in plan.processes
    )
    document = plan_document(replace(plan, processes=other))
    try:
        problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", catalog)
    except InfraError as error:
        return (
            Problem(
                rule="plan-document",
                severity="error",
                field=error.where,
                what=error.what,
                fix=error.fix,
            ),
        )
    return tuple(
        problem for problem in problems if problem.blocks and problem.rule != "derived-field"
    )
