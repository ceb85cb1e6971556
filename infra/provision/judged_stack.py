"""A stack judged by every rule before the first resource, as `fab check` does: what cannot work buys no machine."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import Problem, ProblemsFound
from infra.plan.compile import compile_stack
from infra.plan.process import Plan
from infra.spec.load import LoadedStack


def judged_plan(stack: LoadedStack, catalog: Catalog) -> Plan:
    """The stack compiled and judged by every rule; what does not refuse it is logged.

    Raises:
        InfraError: the stack cannot be compiled, or a rule refuses it.
    """
    plan = compile_stack(stack, catalog=catalog).plan
    refuse_or_warn(judge_stack(plan, stack, catalog))
    return plan


def refuse_or_warn(problems: Sequence[Problem]) -> None:
    """Log what does not refuse a stack.

    Raises:
        ProblemsFound: something does.
    """
    errors = tuple(problem for problem in problems if problem.blocks)
    if errors:
        raise ProblemsFound(errors)
    for problem in problems:
        pulumi.log.warn(str(problem))
