"""The rule about settings that a recipe has for another release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from infra.catalog.load import Combination
from infra.catalog.schema import Recipe
from infra.checks.view import Finding, PlanView
from infra.plan.process import Process
from infra.spec.stack import RoleName

_SHOWN = 6


def recipe_for_release(view: PlanView) -> Iterator[Finding]:
    """A role has a recipe for its release, or what the recipes for other releases would set.

    A recipe names the releases on which it was seen. On another one nothing of it applies, but the engine's defaults.
    """
    for process in view.leaders:
        told = _combination(view, process)
        own = None if told is None else view.catalog.recipe_for(told)
        if told is None or (own is not None and own.applies.versions):
            continue
        recipe = _of_other_release(view, told)
        lacking = [] if recipe is None else _lacking(view, process, recipe)
        if recipe is None or not lacking:
            continue
        shown = ", ".join(lacking[:_SHOWN]) + (" …" if len(lacking) > _SHOWN else "")
        versions = ", ".join(recipe.applies.versions)
        what = f"{recipe.id} is for {told.engine} {versions} and not for {told.version}: "
        what += f"what it sets is left out ({shown})."
        fix = f"Set what still holds under roles.{process.role}.flags and .env, or pin {versions}."
        yield Finding(field="engine.version", what=what, fix=fix, process=process.id)


def _combination(view: PlanView, process: Process) -> Combination | None:
    """What the compiler chose a recipe by; None for a checkpoint that the catalogue lacks."""
    role = next((name for name in get_args(RoleName) if name == process.role), None)
    if view.checkpoint is None or role is None:
        return None
    group = view.groups[process.group]
    return Combination(
        engine=view.release.engine,
        version=view.release.version,
        accelerator=view.accelerator(process).id,
        checkpoint=view.checkpoint.id,
        role=role,
        tensor_parallel=view.size(process, "tensor-parallel-size"),
        data_parallel_over_hosts=len({rank for p in group for rank in p.dp_ranks}) > 1
        and len({p.host for p in group}) > 1,
    )


def _of_other_release(view: PlanView, told: Combination) -> Recipe | None:
    """The recipe for the same on the newest release that has one of its own."""
    for version in reversed(view.catalog.releases(told.engine)):
        recipe = view.catalog.recipe_for(told._replace(version=version))
        if recipe is not None and recipe.applies.versions:
            return recipe
    return None


def _lacking(view: PlanView, process: Process, recipe: Recipe) -> list[str]:
    """Flags and variables of a recipe that a process has not; without those that a site fills in (`{rdma_devices}`)."""
    flags = view.flags(process)
    found = [f"--{name}" for name in recipe.flags if name not in flags]
    given = {**process.env, **process.env_prepend}
    variables = {**recipe.env, **recipe.env_prepend}
    return found + [n for n, value in variables.items() if n not in given and "{" not in value]
