"""Releases that no stack pins: asked about the commands that `engine.version` would give the stacks on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from infra.catalog.load import Catalog, version_key
from infra.catalog.read_releases import read_release
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    shipped_questions,
    stack_files,
)
from infra.packages.verdicts.rows import BASES, row_questions
from infra.plan.compile import compile_file
from infra.plan.process import Plan

# The newest of each engine, and what stands between it and the pinned one as far as it was asked; oldest first.
NEWER: Mapping[str, tuple[str, ...]] = {
    "sglang": ("0.5.23",),
    "vllm": ("0.33.0",),
    "vllm-ascend": ("0.26.0rc1",),
}


def newer_releases() -> Iterator[tuple[str, str]]:
    """(engine, version) of each."""
    for engine, versions in NEWER.items():
        for version in versions:
            yield engine, version


def moved_plans(
    catalog: Catalog, engine: str, version: str, names: Iterable[str] = ()
) -> Iterator[tuple[str, Plan]]:
    """(stack, plan) of every stack of the engine that pins another release, or of those that are named.

    Left out are stacks on devices that the release does not run on. A release that the catalogue has the package of and
    no images has no commands of its own: it is asked about those of the last one before it that has.

    Raises:
        ProblemsFound: a stack cannot be compiled for the release.
    """
    wanted = frozenset(names)
    deployable = _deployable(catalog, engine, version)
    for path in stack_files():
        if wanted and path.stem not in wanted:
            continue
        pinned = compile_file(str(path), catalog=catalog).plan
        vendors = {catalog.accelerator(host.accelerator).vendor for host in pinned.hosts}
        is_elsewhere = pinned.engine.name == engine and pinned.engine.version != version
        if is_elsewhere and vendors <= {*read_release(catalog, engine, version).vendors}:
            sets = (f"engine.version={deployable}",)
            plan = compile_file(str(path), catalog=catalog, sets=sets).plan
            yield path.stem, replace(plan, engine=replace(plan.engine, version=version))


def shipped_elsewhere(plans: Mapping[str, Plan], catalog: Catalog) -> Iterator[Question]:
    """The engines' commands of moved plans; what routers say does not depend on it."""
    for stack, plan in plans.items():
        yield from (q for q in shipped_questions(stack, plan, catalog) if is_of(plan, q))


def broken_elsewhere(plans: Mapping[str, Plan], catalog: Catalog) -> Iterator[Question]:
    """Their damaged commands."""
    for stack, plan in plans.items():
        yield from (q for q in broken_questions(stack, plan, catalog) if is_of(plan, q))


def row_commands(plans: Mapping[str, Plan], catalog: Catalog) -> Iterator[Question]:
    """A command for every row of `infra/catalog/combinations/` that is about the release."""
    for stack in BASES.values():
        if stack not in plans:
            continue
        plan = plans[stack]
        release = read_release(catalog, plan.engine.name, plan.engine.version)
        whole = next(q for q in shipped_questions(stack, plan, catalog) if is_of(plan, q))
        flags = catalog.flags(release.flags_catalogue)
        yield from (question for _, question in row_questions(whole, flags))


def is_of(plan: Plan, question: Question) -> bool:
    """Whether a question is one to the engine of a plan."""
    return question.package == plan.engine.name


def _deployable(catalog: Catalog, engine: str, version: str) -> str:
    """The release itself, or the last one before it from which something can be deployed."""
    key = version_key(version)
    return [each for each in catalog.releases(engine) if version_key(each) <= key][-1]
