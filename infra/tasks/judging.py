"""The rules as a task that acts asks them: a refusal ends it, a warning is printed."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import ProblemsFound
from infra.plan.compile import CompiledStack
from infra.tasks.output import Output
from infra.tasks.secret_files import secret_files


def refuse_problems(compiled: CompiledStack, catalog: Catalog, output: Output) -> None:
    """Judge a compiled stack with every rule: warnings are printed.

    Raises:
        ProblemsFound: a rule refuses it.
    """
    looks = secret_files(compiled.plan.secrets)
    problems = judge_stack(compiled.plan, compiled.stack, catalog, looks)
    errors = tuple(problem for problem in problems if problem.blocks)
    if errors:
        raise ProblemsFound(errors)
    for problem in problems:
        output.message(output.toned(f"{problem.severity}: {problem}", "warn"))
