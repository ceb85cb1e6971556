"""The rules about settings that a recipe has for another release, or for what comes nearest to a role."""

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
        versions = ", ".join(recipe.applies.versions)
        what = f"{recipe.id} is for {told.engine} {versions} and not for {told.version}: "
        what += f"what it sets is left out ({_shown(lacking)})."
        fix = f"Set what still holds under roles.{process.role}.flags and .env, or pin {versions}."
        yield Finding(field="engine.version", what=what, fix=fix, process=process.id)


def recipe_for_role(view: PlanView) -> Iterator[Finding]:
    """A role has a recipe for its checkpoint, or all that the nearest recipe sets.

    The engine's defaults serve a role without one, and nobody has published that they serve it well.
    """
    for process in view.leaders:
        told = _combination(view, process)
        if told is None or _is_covered(view, told):
            continue
        what = f"No recipe is for {told.role} of {told.checkpoint} on {told.accelerator} under {told.engine}"
        what += f" {told.version}"
        nearest = _nearest(view, told)
        if nearest is None:
            what = f"{what}, and none comes near: the engine's defaults serve."
            fix = "Hold the settings against the engine's documentation, and write a recipe."
        else:
            lacking = _lacking(view, process, nearest)
            if not lacking:
                continue
            what = f"{what}: {nearest.id}, the nearest, would set {_shown(lacking)}."
            fix = f"Set what holds here under roles.{process.role}.flags and .env."
        yield Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")


def _combination(view: PlanView, process: Process) -> Combination | None:
    """What the compiler chose a recipe by; None for a checkpoint that the catalogue lacks."""
    role = next((name for name in get_args(RoleName) if name == process.role), None)
    if view.checkpoint is None or role is None:
        return None
    group, flags = view.groups[process.group], view.flags(process)
    return Combination(
        engine=view.release.engine,
        version=view.release.version,
        accelerator=view.accelerator(process).id,
        checkpoint=view.checkpoint.id,
        role=role,
        tensor_parallel=view.size(process, "tensor-parallel-size"),
        data_parallel_over_hosts=len({rank for p in group for rank in p.dp_ranks}) > 1
        and len({p.host for p in group}) > 1,
        draft=bool(flags.get("speculative-config") or flags.get("speculative-draft-model-path")),
    )


def _is_covered(view: PlanView, told: Combination) -> bool:
    """Whether a recipe is for the checkpoint, on this release or on another: of that one `recipe-release` speaks."""
    own = view.catalog.recipe_for(told)
    return (own is not None and bool(own.applies.checkpoints)) or (
        _of_other_release(view, told) is not None
    )


def _of_other_release(view: PlanView, told: Combination) -> Recipe | None:
    """The recipe for the same on the newest release that has one of its own."""
    for version in reversed(view.catalog.releases(told.engine)):
        recipe = view.catalog.recipe_for(told._replace(version=version))
        if recipe is not None and recipe.applies.versions:
            return recipe
    return None


def _nearest(view: PlanView, told: Combination) -> Recipe | None:
    """The recipe of the engine, for devices of the vendor, that has most in common with a role; None without any.

    What weighs most comes first: the weights, the generation of the chip, the role, the chip, the release, the width.
    """
    chip = view.catalog.accelerator(told.accelerator)
    generation = {
        each.id
        for each in map(view.catalog.accelerator, view.catalog.ids("accelerators"))
        if each.generation == chip.generation
    }
    found: list[tuple[tuple[bool, ...], Recipe]] = []
    for recipe in view.catalog.recipes.values():
        when = recipe.applies
        if when.engine != told.engine or not when.checkpoints:
            continue
        if chip.vendor not in {view.catalog.accelerator(a).vendor for a in when.accelerators}:
            continue
        common = (
            told.checkpoint in when.checkpoints,
            bool(generation & set(when.accelerators)),
            told.role in when.roles,
            told.accelerator in when.accelerators,
            told.version in when.versions,
            told.tensor_parallel in when.tensor_parallel,
            told.draft == bool(when.draft),
        )
        found.append((common, recipe))
    return max(found, key=lambda each: each[0])[1] if found else None


def _lacking(view: PlanView, process: Process, recipe: Recipe) -> list[str]:
    """Flags and variables of a recipe that a process has not; without those that a site fills in (`{rdma_devices}`)."""
    flags = view.flags(process)
    found = [f"--{name}" for name in recipe.flags if name not in flags]
    given = {**process.env, **process.env_prepend}
    variables = {**recipe.env, **recipe.env_prepend}
    return found + [n for n, value in variables.items() if n not in given and "{" not in value]
