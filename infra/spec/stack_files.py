"""Where stack files lie, and which one a name means; none of them is read here."""

from __future__ import annotations

import re
from pathlib import Path as FilePath

from infra.errors import Problem, ProblemsFound
from infra.spec.nearest import nearest
from infra.spec.present import is_file

PROJECT = FilePath(__file__).resolve().parents[2]
STACKS = PROJECT / "stacks"
SEARCHED = (STACKS, PROJECT / "tests" / "stacks")
# Of paths, of units and of containers.
STACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Of objects and services in a cluster: a DNS label, as Kubernetes has it (docs "Object Names and IDs", 1.35).
CLUSTER_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def stack_names() -> tuple[str, ...]:
    """The shipped stacks, sorted."""
    return tuple(
        sorted(path.stem for path in STACKS.glob("*.yaml") if not path.name.startswith("Pulumi"))
    )


def find_stack(name_or_path: str) -> FilePath:
    """The file of a stack.

    Raises:
        ProblemsFound: there is none; the message names the nearest stacks.
    """
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        path = FilePath(name_or_path)
        if is_file(path):
            return path
        raise ProblemsFound((_not_found(name_or_path, f"There is no file {name_or_path}."),))
    for folder in SEARCHED:
        candidate = folder / f"{name_or_path}.yaml"
        if is_file(candidate) and not candidate.name.startswith("Pulumi"):
            return candidate
    raise ProblemsFound((_not_found(name_or_path, f"There is no stack {name_or_path}."),))


def _not_found(name: str, what: str) -> Problem:
    fix = nearest(FilePath(name).stem, stack_names()) + " `fab stacks` lists them all."
    return Problem(rule="unknown-stack", severity="error", field="--stack", what=what, fix=fix)
