"""`fab check`: every rule that needs no host, all problems at once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack, without_consequences
from infra.checks.listing import explained, told_releases
from infra.checks.rules import RULES
from infra.errors import Problem, ProblemsFound, StackError
from infra.inventory.hosts import Inventory
from infra.plan.compile import address_book, analyse_stack, compile_plan
from infra.plan.process import Plan
from infra.plan.resolve import Problems
from infra.plan.weights_origin import refuse_unknown_host
from infra.spec.load import LoadedStack
from infra.spec.nearest import nearest
from infra.spec.present import is_file
from infra.tasks.choice import chosen_inventory, chosen_name, has_inventory, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, Tone
from infra.tasks.secret_files import secret_files
from infra.tasks.stack_options import chosen_stack, needs_inventory


def run(options: Options, output: Output) -> int:
    """Print every problem; 0 when there are only warnings, else 2."""
    rule = options.text("explain")
    if rule is not None:
        return _explain(rule, output)
    subject, problems, by_tag = judge_chosen(options)
    is_ok = not any(problem.blocks for problem in problems)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": subject,
            "ok": is_ok,
            "problems": [problem_document(problem) for problem in problems],
            "image_by_tag": by_tag,
        }
    )
    for problem in problems:
        output.data(output.toned(problem_line(problem), tone_of(problem)))
    output.data(f"{subject}: {count_words(problems)}.")
    if by_tag is not None:
        output.message(
            f"{by_tag} runs by its tag alone, and whoever may push there changes it: "
            "engine.image takes NAME:TAG@sha256:…, which `docker image inspect` shows."
        )
    plan_file = options.text("plan")
    is_documentation = plan_file is None and is_ok and needs_inventory(options)
    if is_documentation and not has_inventory(options, subject):
        what = "There is no inventory: addresses are documentation addresses."
        output.message(f"{what} Who may dial them is not judged.")
    if is_ok:
        again = same_choice(options) if plan_file is None else f"--plan {shlex.quote(plan_file)}"
        output.next_command(f"fab {'plan' if plan_file is None else 'rehearse'} {again}")
    return 0 if is_ok else StackError.exit_code


def _explain(name: str, output: Output) -> int:
    """One rule: what holds, how much it weighs, and where that was read.

    Raises:
        StackError: there is no such rule.
    """
    rule = RULES.get(name)
    if rule is None:
        raise StackError("--explain", f"There is no rule {name}.", nearest(name, RULES))
    holds, reason = explained(rule)
    facts = {
        "rule": name,
        "severity": rule.severity,
        "holds": holds,
        "releases": told_releases(rule),
        "source": rule.source,
    }
    head = {"schema_version": SCHEMA_VERSION, "stack": None, "ok": True}
    output.document({**head, **facts, "reason": reason})
    output.data(f"{name} ({rule.severity}): {holds}")
    if reason:
        output.data(reason)
    output.data(f"Releases: {told_releases(rule)}. Source: {rule.source}.")
    accept = f"waive: [{{rule: {name}, reason: WHY}}]"
    output.data(f"A stack that has to live with it writes {accept}; the finding is still printed.")
    output.next_command("fab check --stack NAME")
    return 0


def judge_chosen(options: Options) -> tuple[str, tuple[Problem, ...], str | None]:
    """The stack's or plan's name, everything that is wrong with it, and its image where that has no digest."""
    catalog, plan_file = Catalog(), options.text("plan")
    name = chosen_name(options) if plan_file is None else Path(plan_file).stem
    try:
        if plan_file is not None:
            # The shape of a document: eight models that a stack does without.
            from infra.plan.imported import read_plan  # noqa: PLC0415

            plan = read_plan(Path(plan_file))
            name = plan.stack
            return name, judge_plan(plan, plan_file, catalog), _image_by_tag(plan, catalog)
        stack = chosen_stack(options)
        return name, *_judge(stack, chosen_inventory(options, name), catalog)
    except ProblemsFound as error:
        return name, error.problems, None
    except StackError as error:
        return name, (_as_problem(error),), None


def _image_by_tag(plan: Plan, catalog: Catalog) -> str | None:
    """The image of a plan's containers, where neither the stack nor the catalogue says what its tag means."""
    engine = plan.engine
    known = catalog.image_digest(engine.name, engine.version, engine.image)
    return None if plan.runtime == "native" or "@" in engine.image or known else engine.image


def _as_problem(error: StackError) -> Problem:
    """A refusal that has no rule of its own, as a row: too few hosts, a full block of ports, an unknown id."""
    file, space, field = error.where.partition(" ")
    if is_file(Path(error.where)):  # its path may have spaces
        file, space, field = error.where, " ", ""
    return Problem(
        rule="cannot-compile",
        severity="error",
        field=field if space else error.where,
        what=error.what,
        fix=error.fix,
        file=file if space else None,
    )


def _judge(
    stack: LoadedStack, inventory: Inventory | None, catalog: Catalog
) -> tuple[tuple[Problem, ...], str | None]:
    """Problems of placing the stack and, as far as it can be compiled all the same, of its plan; the plan's image."""
    resolved, topology, problems = analyse_stack(stack, catalog)
    if resolved is None or topology is None:
        return problems, None
    plan = compile_plan(resolved, topology, address_book(topology, inventory), catalog)
    placed = Problems(stack)
    refuse_unknown_host(stack, inventory, placed)
    found = judge_stack(plan, stack, catalog, secret_files(plan.secrets))
    told = without_consequences((*problems, *placed.found), found)
    return told, _image_by_tag(plan, catalog)


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


def count_words(problems: Sequence[Problem]) -> str:
    """`2 errors, no warnings`."""
    errors = sum(problem.blocks for problem in problems)
    warnings = sum(problem.severity == "warning" and problem.waived is None for problem in problems)
    return f"{_number(errors, 'error')}, {_number(warnings, 'warning')}"


def tone_of(problem: Problem) -> Tone:
    """How a problem is coloured."""
    if problem.waived is not None:
        return "dim"
    return "bad" if problem.severity == "error" else "warn"


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
