"""Refuses a compiled plan that does not pass the gate, at the line of the stack that says so."""

from __future__ import annotations

from collections.abc import Mapping

from infra.engines.settings import Origin
from infra.errors import ProblemsFound
from infra.plan.gate import Misfit, misfits
from infra.plan.process import Plan, Process
from infra.plan.resolve import Problems
from infra.spec.load import LoadedStack

RULE = "plan-value"
# Fields of a plan, and those of the stack that they come from.
_FIELDS: Mapping[str, str] = {
    "engine": "engine",
    "weights": "weights.path",
    "secrets": "secrets",
    "tuning": "tuning",
    "checkpoint": "checkpoint",
}


def refuse_misfits(plan: Plan, stack: LoadedStack) -> None:
    """Nothing, for a plan that fits.

    Raises:
        ProblemsFound: a value of the stack, of the catalogue or of the inventory fits no host.
    """
    wrong = misfits(plan)
    if not wrong:
        return
    problems = Problems(stack)
    for misfit in wrong:
        what = f"{misfit.field}: {misfit.what}"
        problems.add(RULE, _stack_field(misfit, plan), what, misfit.fix)
    raise ProblemsFound(tuple(dict.fromkeys(problems.found)))


def _stack_field(misfit: Misfit, plan: Plan) -> str:
    """The field of the stack that mends it; the role's where nothing narrower is known."""
    head, *rest = misfit.path
    if head == "secrets" and rest:
        return f"secrets.{rest[0]}"
    if head != "processes" or len(rest) < 2 or not isinstance(rest[0], int):  # noqa: PLR2004 - index, key
        return f"engine.{rest[0]}" if head == "engine" and rest else _FIELDS.get(str(head), "")
    process = plan.processes[rest[0]]
    origin = _origin(process, rest[1:])
    if origin is not None and origin.kind in ("role", "operator"):
        return origin.name
    return f"roles.{process.role}" if process.kind == "engine" else process.kind


def _origin(process: Process, path: list[str | int]) -> Origin | None:
    """Who said a variable, or the word of an argument vector: of a value, who said its flag."""
    key, *rest = path
    if key in ("env", "env_prepend") and rest:
        return process.env_origins.get(str(rest[0]))
    if key != "argv" or not rest:
        return None
    before = process.argv[: int(rest[0]) + 1]
    flag = next((word for word in reversed(before) if word in process.flag_origins), None)
    return None if flag is None else process.flag_origins[flag]
