"""What a foreign file leaves out: the engine's release, the accelerator, the checkpoint; told, read off, or assumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator, Checkpoint, Family, Release
from infra.engines.recognition import recognise, vendor_named
from infra.plan.foreign.engine_release import (
    ENGINE_NAMES,
    VERSION,
    Judging,
    Named,
    choose_releases,
    is_development,
    named_release,
)
from infra.plan.foreign.source import Launch, Recipe, Word
from infra.plan.grammar import is_image

Unknown = Literal["release", "accelerator", "checkpoint", "addresses", "whole"]


# Words of a node selector that name a chip, in the vendors' spellings.
_CHIP = re.compile(
    r"(?i)\b(?:nvidia|amd|instinct|tesla)[-_ ]\w|\b(?:[ablhgv]+\d{2,3}|rtx[-_ ]?\w+|mi\d{3}\w?)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the file does not say in so many words, and where it was taken from."""

    what: str
    value: str
    why: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the operator says beside the file, None for what is left to the file."""

    engine: str | None = None
    accelerator: str | None = None
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the plan is made with.

    Args:
        release: that of the catalogue whose parser reads the command lines.
        judged_on: releases on each of which a finding has to hold; () when none is sure to be like the file's own.
        release_named: the version as the file or the operator writes it, None when nobody does.
        accelerator: that of every host; a stand-in where `unknown` has it.
        checkpoint: None where the catalogue has none of that name.
        image: the container image, empty without one.
        image_left_out: what the file names in its place, and no container runtime takes.
        unknown: what was not settled, so that rules about it cannot be judged.
    """

    release: Release
    judged_on: tuple[Release, ...]
    release_named: str | None
    accelerator: Accelerator
    checkpoint: Checkpoint | None
    image: str
    image_left_out: str
    image_line: int | None
    assumptions: tuple[Assumption, ...]
    unknown: frozenset[Unknown]

    @property
    def is_between_releases(self) -> bool:
        """Whether the file names a development build, which its number does not describe."""
        return self.release_named is not None and is_development(self.release_named)


def settle(recipe: Recipe, told: Told, catalog: Catalog, file_name: str) -> Facts:
    """Engine release, accelerator and checkpoint of a recipe.

    Args:
        recipe: with at least one engine.
        told: what the operator says.
        catalog: what is known.
        file_name: the file's own name, which often names the accelerator.

    Raises:
        StackError: the operator names what the catalogue does not have.
    """
    notes: list[Assumption] = []
    unknown: set[Unknown] = set()
    images = _images(catalog)
    launches = [launch for launch in recipe.launches if family_of(launch)]
    vendor = vendor_of(launches, recipe.hints)
    version, judging = _releases(recipe, launches, told, vendor, catalog)
    release = judging.reader
    value = f"{release.engine} {release.version}"
    notes.append(Assumption(what="engine", value=value, why=judging.note, line=version.line))
    is_between = version.version is not None and is_development(version.version)
    if version.version is None or is_between or not judging.releases:
        unknown.add("release")
    named = _accelerator_named(recipe, told, catalog, images, file_name)
    if named is None:
        unknown.add("accelerator")
        accelerator = _stand_in(catalog, vendor or release.vendors[0])
        lacking = _accelerator_lacking(recipe)
        why = f"{lacking}: rules about it are not judged; give --accelerator"
        notes.append(Assumption(what="accelerator", value="unknown", why=why))
    else:
        accelerator = catalog.accelerator(named.value)
        notes.append(named)
    if recipe.uses_ray:
        why = "Ray lends a process those of other hosts; they are shown on its own"
        notes.append(Assumption(what="devices", value="of a Ray cluster", why=why))
    checkpoint = _checkpoint(launches, told, catalog, (notes, unknown))
    image = next(
        (
            launch.container.image
            for launch in launches
            if launch.container and launch.container.image
        ),
        None,
    )
    image = image or next((word for word in recipe.hints if "==" not in word.text), None)
    is_other = image is not None and not image.open_names and _is_other(image.text)
    return Facts(
        release=release,
        judged_on=judging.releases,
        release_named=version.version,
        accelerator=accelerator,
        checkpoint=checkpoint,
        image=image.text if image and not image.open_names and not is_other else "",
        image_left_out=image.text if image and is_other else "",
        image_line=image.line if image else None,
        assumptions=tuple(notes),
        unknown=frozenset(unknown),
    )


def _is_other(image: str) -> bool:
    """Whether what stands for an image is an archive, an alias, or another tool's spelling of its place."""
    return re.fullmatch(r"[\w./~][\w./:@#~+-]*", image) is not None and not is_image(image)


_Notes = tuple[list[Assumption], set[Unknown]]


def family_of(launch: Launch) -> Family | None:
    """Whose command line a process has; None for one that is no engine's."""
    program = recognise([word.text for word in launch.words])
    return program.family if program is not None and program.kind == "engine" else None


def vendor_of(launches: Sequence[Launch], hints: Sequence[Word]) -> str | None:
    """Whose accelerators a file is for, by its variables, command lines and images; None where nothing tells."""
    for launch in launches:
        found = vendor_named(tuple(launch.env), [word.text for word in launch.words])
        if found is not None:
            return found
    texts = [hint.text.lower() for hint in hints]
    if any("ascend" in text for text in texts):
        return "ascend"
    return "amd" if any("rocm" in text for text in texts) else None


def _releases(
    recipe: Recipe, launches: Sequence[Launch], told: Told, vendor: str | None, catalog: Catalog
) -> tuple[Named, Judging]:
    family = next(f for launch in launches if (f := family_of(launch)))
    named = named_release(family, vendor, told.engine, recipe)
    return named, choose_releases(named, launches, catalog)


def _images(catalog: Catalog) -> Mapping[str, tuple[str, ...]]:
    """Image reference with `{v}` for the version → accelerators that it is for."""
    found: dict[str, tuple[str, ...]] = {}
    for name in ENGINE_NAMES:
        for version in catalog.ids(f"engines/{name}"):
            for image in catalog.release(name, version).images:
                found[image.reference.replace(version, "{v}")] = image.accelerators
    return found


def _accelerator_named(
    recipe: Recipe,
    told: Told,
    catalog: Catalog,
    images: Mapping[str, tuple[str, ...]],
    file_name: str,
) -> Assumption | None:
    """The accelerator that the operator, the format, a hint or the file's name says."""
    ids = catalog.ids("accelerators")
    if told.accelerator is not None:
        catalog.accelerator(told.accelerator)
        return Assumption(what="accelerator", value=told.accelerator, why="--accelerator")
    if recipe.accelerator is not None:
        found = one_of(recipe.accelerator, ids)
        if found is None:  # one that the catalogue lacks, or a word for several
            return None
        return Assumption(what="accelerator", value=found, why="the file names it")
    return _accelerator_hinted(recipe, catalog, images) or _of_name(file_name, ids)


def _accelerator_lacking(recipe: Recipe) -> str:
    """Why no accelerator is known: none is named, or one that the catalogue lacks."""
    if recipe.accelerator is not None:
        return f"the catalogue has no {recipe.accelerator}"
    for hint in recipe.hints:
        if _CHIP.search(hint.text):
            return f"the catalogue has no {hint.text} (line {hint.line})"
    return "nothing in the file names one"


def _of_name(file_name: str, ids: Iterable[str]) -> Assumption | None:
    found = one_of(file_name, ids)
    if found is None:
        return None
    return Assumption(what="accelerator", value=found, why=f"the file's name, {file_name}")


def _accelerator_hinted(
    recipe: Recipe, catalog: Catalog, images: Mapping[str, tuple[str, ...]]
) -> Assumption | None:
    """By an image, a node selector, or how many devices a host has; of alternatives all must say the same."""
    ids = catalog.ids("accelerators")
    told: list[Assumption | None] = []
    for hint in recipe.hints:
        named = one_of(hint.text, ids)
        of_image = images.get(VERSION.sub("v{v}", hint.text, count=1), ())
        value = named or (of_image[0] if len(of_image) == 1 else None)
        note = value and Assumption(what="accelerator", value=value, why=hint.text, line=hint.line)
        told.append(note or None)
    values = {note and note.value for note in told}
    first = next((note for note in told if note), None)
    if first is not None and (len(values) == 1 or not recipe.is_collection):
        return first
    vendor = vendor_of([launch for launch in recipe.launches if family_of(launch)], recipe.hints)
    if vendor == "ascend" and recipe.devices_per_host is not None:
        fitting = [i for i in ids if _fits(catalog.accelerator(i), vendor, recipe.devices_per_host)]
        if len(fitting) == 1:
            why = f"{recipe.devices_per_host} devices on each host"
            return Assumption(what="accelerator", value=fitting[0], why=why)
    return None


def _fits(accelerator: Accelerator, vendor: str, num_devices: int) -> bool:
    return accelerator.vendor == vendor and accelerator.devices_per_host == num_devices


def one_of(text: str, ids: Iterable[str]) -> str | None:
    """The one id that a text has among its words."""
    words = set(re.split(r"[^a-z0-9]+", text.lower()))
    found = [name for name in ids if name in words or ("-" in name and name in text.lower())]
    return found[0] if len(found) == 1 else None


def _stand_in(catalog: Catalog, vendor: str) -> Accelerator:
    """Some accelerator of the vendor, for a plan that must name one: that with the most memory."""
    known = [catalog.accelerator(name) for name in catalog.ids("accelerators")]
    return max((a for a in known if a.vendor == vendor), key=lambda a: (a.memory_mib, a.id))


def _checkpoint(
    launches: Sequence[Launch], told: Told, catalog: Catalog, notes: _Notes
) -> Checkpoint | None:
    """The catalogue's entry of the model that is served."""
    if told.checkpoint is not None:
        entry = catalog.checkpoint(told.checkpoint)
        notes[0].append(Assumption(what="checkpoint", value=entry.id, why="--checkpoint"))
        return entry
    entries = [catalog.checkpoint(name) for name in catalog.ids("checkpoints")]
    for launch in launches:
        for word in launch.words:
            found = next((e for e in entries if e.kind == "model" and _names(word.text, e)), None)
            if found is not None:
                note = Assumption(
                    what="checkpoint", value=found.id, why=f"{word.text}", line=word.line
                )
                notes[0].append(note)
                return found
    notes[1].add("checkpoint")
    why = "the catalogue has no such model: rules about its shape and size are not judged; give --checkpoint"
    notes[0].append(Assumption(what="checkpoint", value="unknown", why=why))
    return None


def _names(text: str, checkpoint: Checkpoint) -> bool:
    """Whether a word is the checkpoint's repository, or a path of which a folder bears its name."""
    if "/" not in text or text[:1] in "{[-":
        return False
    parts = [part.lower() for part in text.rstrip("/").split("/")]
    tail = checkpoint.repository.lower().rpartition("/")[2]
    snapshot = "models--" + checkpoint.repository.lower().replace("/", "--")
    return tail in parts[-2:] or checkpoint.id in parts[-2:] or snapshot in parts
