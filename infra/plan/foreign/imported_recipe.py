"""A foreign file imported: read in its format, settled with what is known, assembled to a plan."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_release, read_versions
from infra.engines.command_line import canonical_flag
from infra.engines.recognition import is_wrapped, recognise
from infra.errors import Problem, ProblemsFound
from infra.plan.document import plan_hash
from infra.plan.foreign.assemble import Assembled, assemble, stack_name
from infra.plan.foreign.assumed import Facts, Told, settle
from infra.plan.foreign.blanks import leave_open
from infra.plan.foreign.contradictions import refuse_contradictions
from infra.plan.foreign.engine_release import ENGINE_NAMES
from infra.plan.foreign.formats import read_format
from infra.plan.foreign.mentions import (
    NOT_FOLLOWED,
    engine_mentions,
    engine_not_read,
    other_engine,
)
from infra.plan.foreign.mounts import left_out, mount_line
from infra.plan.foreign.router_roles import with_listed_roles
from infra.plan.foreign.script import EntryPoints, repository_of
from infra.plan.foreign.seats import Seat, is_secret, read_seat
from infra.plan.foreign.shell_words import ShellTroubleError
from infra.plan.foreign.source import (
    Launch,
    NodesAsked,
    NotUnderstood,
    Recipe,
    read_text,
    refused,
)
from infra.plan.gate import misfits
from infra.plan.grammar import field_of, shown
from infra.plan.host_mounts import mount_refusal
from infra.spec.work import TooMuchWorkError

# Flags of a file for which the nearest one is looked up, which takes milliseconds each.
MAX_CORRECTED = 100
# Each is compared with each; racks of the largest published recipes start a hundred.
MAX_LAUNCHES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRecipe:
    """A foreign file as a plan.

    Args:
        file: as the operator named it.
        not_understood: by line.
        choice: of a file with a sweep, the values by name that this combination has.
        others: the other combinations, each a plan of its own.
        nodes_asked: what it asks for as a whole.
        uses_ray: whether a Ray cluster lends its processes devices of other hosts.
    """

    file: str
    format: str
    is_whole: bool
    is_collection: bool
    assembled: Assembled
    facts: Facts
    not_understood: tuple[NotUnderstood, ...]
    choice: Mapping[str, str]
    others: tuple[ImportedRecipe, ...] = ()
    nodes_asked: tuple[NodesAsked, ...] = ()
    uses_ray: bool = False


def import_recipe(
    path: Path, told: Told, settings: Mapping[str, str], catalog: Catalog
) -> ImportedRecipe:
    """The plan of a foreign file.

    Args:
        path: the file.
        told: engine, accelerator and checkpoint, as far as the operator says them.
        settings: variables of its scripts that the operator gives.
        catalog: what is known.

    Raises:
        ProblemsFound: the file cannot be read, is of no known format, starts no engine, holds what no plan can, or says
            otherwise than the operator.
        StackError: the operator names what the catalogue does not have.
    """
    text = read_text(path)
    try:
        recipe = read_format(path, text, settings, image_entrypoints(catalog))
    except (ShellTroubleError, TooMuchWorkError) as error:
        fix = "Give the part of it that starts the engines alone."
        raise refused(path, f"It is not followed: {error.why}.", fix, error.line or None) from error
    if not any(map(_is_engine, recipe.launches)):
        raise _nothing_started(path, recipe, text)
    first, *others = (_import_one(path, each, told, catalog) for each in (recipe, *recipe.others))
    return replace(first, others=tuple(others))


def _import_one(path: Path, recipe: Recipe, told: Told, catalog: Catalog) -> ImportedRecipe:
    """The plan of one deployment: of a file with a sweep, of one combination."""
    if len(recipe.launches) > MAX_LAUNCHES:
        what = f"It starts {len(recipe.launches)} processes; at most {MAX_LAUNCHES} are read."
        raise refused(path, what, "Give a part of it.", recipe.launches[MAX_LAUNCHES].line)
    recipe = replace(recipe, launches=tuple(map(leave_open, recipe.launches)))
    refuse_contradictions(path, recipe, told, catalog)
    facts = settle(recipe, told, catalog, path.name)
    kept, notes = _one_engine(recipe, facts)
    seats, more = _seats(kept, facts, catalog)
    seats = with_listed_roles(seats, recipe)
    name = stack_name(path.stem)
    assembled = _through_gate(path, assemble(name, recipe, seats, facts, catalog), facts)
    found = {*recipe.not_understood, *notes, *more, *_open_notes(seats), *left_out(kept)}
    if facts.image_left_out and facts.image_line is not None:
        why = "no image as a container runtime takes it: left out of the plan"
        text = f"image {shown(facts.image_left_out)}"
        found.add(NotUnderstood(facts.image_line, text, why))
    if "release" in facts.unknown:
        found |= set(_unheard_of(seats, facts, catalog))
    return ImportedRecipe(
        file=str(path),
        format=recipe.format,
        is_whole=recipe.is_whole,
        is_collection=recipe.is_collection,
        assembled=assembled,
        facts=facts,
        not_understood=tuple(sorted(found)),
        choice=recipe.choice,
        nodes_asked=recipe.nodes_asked,
        uses_ray=recipe.uses_ray,
    )


def _through_gate(path: Path, assembled: Assembled, facts: Facts) -> Assembled:
    """A plan that fits, with its hash.

    Raises:
        ProblemsFound: the file holds what no plan can, each at its line.
    """
    plan = assembled.plan
    wrong = tuple(
        Problem(
            rule="plan-value",
            severity="error",
            field=field_of(misfit.path[-2:]),
            what=misfit.what,
            fix=misfit.fix,
            file=str(path),
            line=_line(misfit.path, assembled, facts),
        )
        for misfit in misfits(plan)
    )
    if wrong:
        raise ProblemsFound(tuple(dict.fromkeys((*wrong, *_open_mounts(path, assembled)))))
    return replace(assembled, plan=replace(plan, hash=plan_hash(plan)))


def _open_mounts(path: Path, assembled: Assembled) -> Iterator[Problem]:
    """What the rule `host-mount` would say of a file that no rule gets to see."""
    for process in assembled.plan.processes:
        for mount in process.mounts:
            refusal = mount_refusal(mount.source, read_only=mount.read_only)
            if refusal is not None:
                yield Problem(
                    rule="host-mount",
                    severity="error",
                    field="mounts",
                    what=refusal[0],
                    fix=refusal[1],
                    file=str(path),
                    line=mount_line(mount.source, assembled.seats[process.id].launch),
                )


def _line(path: tuple[str | int, ...], assembled: Assembled, facts: Facts) -> int | None:
    """Where the file says what a field of its plan holds."""
    if path[0] != "processes" or len(path) < 3:  # noqa: PLR2004 - index, key
        return facts.image_line if path[0] == "engine" else None
    process = assembled.plan.processes[int(path[1])]
    seat, key, *rest = assembled.seats[process.id], *path[2:]
    if key in ("env", "env_prepend") and rest:
        return seat.launch.env[str(rest[0])].line
    if key == "argv" and rest:
        return seat.words[int(rest[0])].line
    if key == "mounts" and rest:
        return mount_line(process.mounts[int(rest[0])].source, seat.launch)
    return seat.launch.line


def image_entrypoints(catalog: Catalog) -> EntryPoints:
    """What the images of the catalogue's releases start by themselves, by repository."""
    found = {}
    for name in ENGINE_NAMES:
        for version in catalog.ids(f"engines/{name}"):
            for image in catalog.release(name, version).images:
                if image.entrypoint:
                    found[repository_of(image.reference)] = image.entrypoint
    return found


_NO_ENGINE_FIX = (
    "Give a file that starts `vllm serve`, `sglang.launch_server` or a container of theirs; "
    "docs/import.md lists the formats."
)


def _nothing_started(path: Path, recipe: Recipe, text: str) -> ProblemsFound:
    """Where a program is named all the same, else the first thing that was not understood.

    A page may name one in its prose: then there is nothing to follow.
    """
    other = recipe.other_engine
    named = (other.line, other.text) if other is not None else None
    if named is None and not recipe.is_collection:
        named = other_engine(text)
    if named is not None:
        return engine_not_read(path, *named)
    what = f"This {recipe.format} starts no engine that I know."
    mentions = None if recipe.is_collection else engine_mentions(text)
    if mentions is not None:
        said = f"{what} {mentions.said}"
        return refused(path, said, NOT_FOLLOWED, mentions.line, rule="not-followed")
    line = None
    if recipe.not_understood:
        first = recipe.not_understood[0]
        line = first.line
        what += f" Not understood: line {first.line}, {first.text or 'statement'}: {first.why}"
        more = len(recipe.not_understood) - 1
        what += f" (and {more} more)." if more else "."
    return refused(path, what, _NO_ENGINE_FIX, line, rule="no-engine")


def _is_engine(launch: Launch) -> bool:
    program = recognise([word.text for word in launch.words])
    return program is not None and program.kind == "engine"


def _one_engine(recipe: Recipe, facts: Facts) -> tuple[list[Launch], list[NotUnderstood]]:
    """A plan has one engine: processes of another are listed."""
    family = facts.release.family
    kept: list[Launch] = []
    notes: list[NotUnderstood] = []
    for launch in recipe.launches:
        program = recognise([word.text for word in launch.words])
        if program is not None and program.kind == "engine" and program.family != family:
            why = f"a plan has one engine, and this file's first is {family}"
            notes.append(NotUnderstood(launch.line, " ".join(program.canonical), why))
        else:
            kept.append(launch)
    return kept, notes


def _seats(
    launches: list[Launch], facts: Facts, catalog: Catalog
) -> tuple[list[Seat], list[NotUnderstood]]:
    flags = catalog.flags(facts.release.flags_catalogue)
    seats: list[Seat] = []
    notes: list[NotUnderstood] = []
    for launch in launches:
        seat, more = read_seat(launch, facts, flags, _router_flags(launch, catalog))
        seats.append(seat)
        notes += more
    return seats, notes


def _router_flags(launch: Launch, catalog: Catalog) -> FlagCatalogue | None:
    router = catalog.router_of(tuple(word.text for word in launch.words))
    return catalog.flags(router.flags_catalogue) if router and router.flags_catalogue else None


def _unheard_of(seats: list[Seat], facts: Facts, catalog: Catalog) -> Iterator[NotUnderstood]:
    """Flags that no release of the engine in the catalogue has: misspelt, or of a release that it lacks."""
    engine = facts.release.engine
    releases = [
        read_release(catalog, engine, v).flags_catalogue for v in read_versions(catalog, engine)
    ]
    known = [catalog.flags(name) for name in dict.fromkeys(releases)]
    options = [option for flags in known for option in flags.by_option]
    near: dict[str, str] = {}
    for seat in seats:
        if seat.kind != "engine" or is_wrapped(seat.argv):
            continue
        for word in seat.words:
            name = word.text.partition("=")[0]
            if not name.startswith("--") or any(canonical_flag(name, flags) for flags in known):
                continue
            if name not in near and len(near) < MAX_CORRECTED:
                close = difflib.get_close_matches(name, options, n=1)
                near[name] = f"; the nearest is {close[0]}" if close else ""
            why = f"no release of {engine} in the catalogue has it{near.get(name, '')}"
            yield NotUnderstood(word.line, name, why)


def _open_notes(seats: list[Seat]) -> list[NotUnderstood]:
    """One line per open word that stayed part of the plan."""
    notes = []
    for seat in seats:
        given = [word for name, word in seat.launch.env.items() if not is_secret(name)]
        for word in (*seat.words, *given):
            if word.open_names:
                names = ", ".join(dict.fromkeys(word.open_names))
                why = f"{names} is not settled by the file: give --set NAME=VALUE"
                text = word.text if len(word.text) < 60 else f"{word.text[:59]}…"  # noqa: PLR2004 - a line
                notes.append(NotUnderstood(word.line, text.replace("\n", " "), why))
    return notes
