"""`fab check`: every rule that needs no host, all problems at once."""

from __future__ import annotations

from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack
from infra.errors import Problem, ProblemsFound, StackError
from infra.inventory.hosts import Inventory
from infra.plan.compile import address_book, analyse_stack, compile_plan
from infra.plan.imported import read_plan
from infra.spec.load import LoadedStack
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, Tone
from infra.tasks.stack_options import chosen_inventory, chosen_stack


def run(options: Options, output: Output) -> int:
    """Print every problem; 0 when there are only warnings, else 2."""
    subject, problems = judge_chosen(options)
    is_ok = not any(problem.blocks for problem in problems)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": subject,
            "ok": is_ok,
            "problems": [problem_document(problem) for problem in problems],
        }
    )
    for problem in problems:
        output.data(output.toned(problem_line(problem), _tone(problem)))
    errors = sum(problem.blocks for problem in problems)
    warnings = sum(problem.severity == "warning" and problem.waived is None for problem in problems)
    output.data(f"{subject}: {_number(errors, 'error')}, {_number(warnings, 'warning')}.")
    if is_ok:
        output.next_command(f"fab plan --stack {subject}")
    return 0 if is_ok else StackError.exit_code


def judge_chosen(options: Options) -> tuple[str, tuple[Problem, ...]]:
    """The stack's or plan's name, and everything that is wrong with it."""
    catalog, plan_file = Catalog(), options.text("plan")
    name = options.text("stack") or options.text("file") or plan_file or ""
    try:
        if plan_file is not None:
            plan = read_plan(Path(plan_file))
            return plan.stack, judge_plan(plan, plan_file, catalog)
        stack = chosen_stack(options)
        return stack.name, _judge(stack, chosen_inventory(options, stack.name), catalog)
    except ProblemsFound as error:
        return name, error.problems


def _judge(
    stack: LoadedStack, inventory: Inventory | None, catalog: Catalog
) -> tuple[Problem, ...]:
    """Problems of placing the stack and, as far as it can be compiled all the same, of its plan."""
    resolved, topology, problems = analyse_stack(stack, catalog)
    if resolved is None or topology is None:
        return problems
    plan = compile_plan(resolved, topology, address_book(topology, inventory), catalog)
    return (*problems, *judge_stack(plan, stack, catalog))


def problem_document(problem: Problem) -> dict[str, object]:
    """One row of `problems`."""
    return {
        "rule": problem.rule,
        "severity": problem.severity,
        "file": problem.file,
        "line": problem.line,
        "field": problem.field,
        "what": problem.what,
        "fix": problem.fix,
        "waived": problem.waived,
    }


def problem_line(problem: Problem) -> str:
    """One problem for people."""
    waived = f" (waived: {problem.waived})" if problem.waived is not None else ""
    return f"{problem.severity}: {problem}{waived}"


def _tone(problem: Problem) -> Tone:
    if problem.waived is not None:
        return "dim"
    return "bad" if problem.severity == "error" else "warn"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
