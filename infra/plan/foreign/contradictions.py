"""Refuses an option of `fab import` that says otherwise than the file: nothing could be judged by both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.catalog.load import Catalog
from infra.engines.recognition import recognise
from infra.engines.registry import FLAG_FAMILY
from infra.errors import Problem, ProblemsFound
from infra.plan.foreign.assumed import Told, family_of, one_of, vendor_of
from infra.plan.foreign.engine_release import chosen_engine
from infra.plan.foreign.source import Launch, Recipe
from infra.plan.grammar import shown

RULE = "option-contradicts"


def refuse_contradictions(path: Path, recipe: Recipe, told: Told, catalog: Catalog) -> None:
    """Nothing, where what the operator says can be true of the file.

    Args:
        path: the file.
        recipe: with at least one engine.
        told: what the operator says.
        catalog: what is known.

    Raises:
        ProblemsFound: an option says otherwise than the file, each at its line.
        StackError: an option names what the catalogue does not have.
    """
    launches = [launch for launch in recipe.launches if family_of(launch)]
    found = (
        *_engine(recipe, launches, told),
        *_accelerator(recipe, launches, told, catalog),
        *_checkpoint(launches, told, catalog),
    )
    if found:
        raise ProblemsFound(
            tuple(
                Problem(
                    rule=RULE,
                    severity="error",
                    field=option,
                    what=what,
                    fix=fix,
                    file=str(path),
                    line=line,
                )
                for option, line, what, fix in found
            )
        )


_Row = tuple[str, int | None, str, str]


def _engine(recipe: Recipe, launches: list[Launch], told: Told) -> Iterator[_Row]:
    """One family's command lines are not read as the other's, nor one vendor's as another's."""
    if told.engine is None:
        return
    name, family = chosen_engine(told.engine)[0], family_of(launches[0])
    if FLAG_FAMILY[name] != family:
        program = recognise([word.text for word in launches[0].words])
        started = " ".join(program.canonical) if program else str(family)
        what = f"The file starts {started}, and --engine says {name}."
        fix = f"Leave --engine out, or name a release of {family}: --engine {family}:VERSION."
        yield "--engine", launches[0].line, what, fix
        return
    vendor = vendor_of(launches, recipe.hints)
    if family == "vllm" and vendor and (vendor == "ascend") != (name == "vllm-ascend"):
        what = f"The file is for {vendor}, and --engine says {name}."
        own = "vllm-ascend" if vendor == "ascend" else "vllm"
        fix = f"Leave --engine out, or name a release of {own}: --engine {own}:VERSION."
        yield "--engine", launches[0].line, what, fix


def _accelerator(
    recipe: Recipe, launches: list[Launch], told: Told, catalog: Catalog
) -> Iterator[_Row]:
    """The accelerator's name where the format has one, else its vendor, where variables or images tell."""
    if told.accelerator is None:
        return
    said = catalog.accelerator(told.accelerator)
    fix = "Leave --accelerator out, or name one of those."
    own = one_of(recipe.accelerator or "", catalog.ids("accelerators"))
    vendor = vendor_of(launches, recipe.hints)
    if own is not None and own != said.id:
        what = f"The file is for {own}, and --accelerator says {said.id}."
        yield "--accelerator", None, what, fix
    elif vendor is not None and vendor != said.vendor:
        what = f"The file is for {vendor}, and --accelerator says {said.id} ({said.vendor})."
        yield "--accelerator", launches[0].line, what, fix
    elif told.engine is not None and (chosen_engine(told.engine)[0] == "vllm-ascend") != (
        said.vendor == "ascend"
    ):
        what = f"--engine says {shown(told.engine)}, and --accelerator {said.id} ({said.vendor})."
        yield "--accelerator", None, what, "Name an engine and an accelerator that go together."


def _checkpoint(launches: list[Launch], told: Told, catalog: Catalog) -> Iterator[_Row]:
    """A hub's repository by its whole name is one checkpoint's, whatever a folder is called."""
    if told.checkpoint is None:
        return
    said = catalog.checkpoint(told.checkpoint)
    entries = [catalog.checkpoint(name) for name in catalog.ids("checkpoints")]
    own = {entry.repository.lower(): entry for entry in entries if entry.kind == "model"}
    for launch in launches:
        for word in launch.words:
            entry = own.get(word.text.lower())
            if entry is not None and entry.repository != said.repository:
                what = f"The file serves {entry.repository} ({entry.id}), and --checkpoint says {said.id}."
                yield "--checkpoint", word.line, what, "Leave --checkpoint out, or name that one."
                return
