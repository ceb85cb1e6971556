"""One mistake told once: what a line says to several roles is told with their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infra.errors import Problem


def role_of(field: str) -> str | None:
    """The role that a dotted field of a stack is of, None for what all roles share."""
    head, _, rest = field.partition(".")
    return rest.partition(".")[0] if head == "roles" and rest else None


def told_once(rows: Iterable[tuple[Problem, str | None]]) -> list[Problem]:
    """The problems, each once.

    Args:
        rows: each problem with the role that it is about, None where it is about no single one; in order.

    Returns:
        Problems of one field with one text are one; so are those of roles as a whole. What is written for several roles
        names those that it is wrong for.
    """
    groups: dict[tuple[str, str, str, str], tuple[Problem, dict[str, None]]] = {}
    for problem, role in rows:
        is_role = problem.field == f"roles.{role}"
        key = (problem.rule, "roles" if is_role else problem.field, problem.what, problem.fix)
        first, roles = groups.setdefault(key, (problem, {}))
        if role is not None and (is_role or role_of(first.field) is None):
            roles[role] = None
    return [
        replace(first, what=f"{' and '.join(roles)}: {first.what}") if len(roles) > 1 else first
        for first, roles in groups.values()
    ]
