"""Which engine release a foreign file is read with, and on which ones it is judged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog, version_key
from infra.catalog.read_releases import read_release, read_versions, releases_around
from infra.catalog.schema import Family, Release
from infra.engines.command_line import canonical_flag
from infra.errors import StackError
from infra.plan.foreign.script import repository_of
from infra.plan.foreign.source import Launch, Recipe, Word
from infra.plan.grammar import shown
from infra.spec.nearest import nearest
from infra.spec.stack import EngineName

ENGINE_NAMES: tuple[EngineName, ...] = ("vllm-ascend", "vllm", "sglang")
VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:\.?(?:rc|post|dev|alpha|beta)\d+)*)")
# Between two tags setuptools-scm writes the last tag that it reaches and the commits since: 0.17.2rc1.dev2746+g20bafca
# has 2746 commits more than 0.17.2rc1, and what later releases have is in it or not.
_BETWEEN_TAGS = re.compile(r"\.dev\d+|[+_]g[0-9a-f]{7,}|^v?dev|nightly")
_PACKAGE = re.compile(r"(vllm-ascend|vllm|sglang)(?:\[[\w,-]*\])?==([\w.]+)")
_OWN_IMAGES = re.compile(r"(?:^|/)(vllm-openai|vllm-openai-rocm|vllm-ascend|sglang|vllm)$")
_CHOSEN = re.compile(r"(vllm-ascend|vllm|sglang)(?:(?:[:@ -]|==)v?(\w[\w.+-]*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a file or its operator says of the release.

    Args:
        version: None when nobody names one.
        why: who names it.
    """

    engine: EngineName
    version: str | None
    why: str
    line: int | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The releases of one import.

    Args:
        reader: whose parser reads the command lines.
        releases: what is found counts when it holds on each of them: the file's own, the nearest on both sides of it,
            or all for a file that names none or a development build; () for one that names another beyond all of them.
        note: how it was chosen, for people.
    """

    reader: Release
    releases: tuple[Release, ...]
    note: str


def named_release(
    family: Family,
    vendor: str | None,
    told: str | None,
    recipe: Recipe,
) -> Named:
    """The engine and the version that are named.

    Args:
        family: whose command lines they are.
        vendor: whose accelerators they are for, None when nothing says so.
        told: what the operator says.
        recipe: the version that its format names, and texts that may name one; where its parts are alternatives, all
            that do must name the same.

    Raises:
        StackError: the operator names no engine.
    """
    name: EngineName = (
        "sglang" if family == "sglang" else "vllm-ascend" if vendor == "ascend" else "vllm"
    )
    version = recipe.engine_version
    if told is not None:
        name, chosen = chosen_engine(told)
        if chosen is not None:
            return Named(engine=name, version=chosen, why="--engine", is_told=True)
    if version is not None and (VERSION.match(version) or is_development(version)):
        return Named(engine=name, version=version, why="the file names it")
    found = list(_hinted(recipe.hints, name))
    if not found or (recipe.is_collection and len({each.version for each in found}) > 1):
        return Named(engine=name, version=None, why="")
    return found[0]


def chosen_engine(told: str) -> tuple[EngineName, str | None]:
    """The engine that the operator names, and its version, None without one.

    Raises:
        StackError: there is no such engine.
    """
    match = _CHOSEN.fullmatch(told)
    if match is None:
        fix = f"Write one of {', '.join(ENGINE_NAMES)}, with a version behind a colon: vllm:0.22.1."
        raise StackError("--engine", f"There is no engine {shown(told)}.", fix)
    return next(known for known in ENGINE_NAMES if known == match[1]), match[2]


def is_development(version: str) -> bool:
    """Whether a version is that of a build between two releases: its number says nothing of what is in it."""
    return _BETWEEN_TAGS.search(version) is not None


def choose_releases(named: Named, launches: Sequence[Launch], catalog: Catalog) -> Judging:
    """The releases that a file is read with and judged on.

    A version whose package was never read is judged on the nearest on both sides: what both refuse, it refuses. The
    one of them that knows more of the file's flags reads it.

    Raises:
        StackError: the operator names a version beyond all that the catalogue has.
    """
    versions = read_versions(catalog, named.engine)
    if named.version is None or is_development(named.version):
        all_of_them = f"what is found on all from {versions[0]} to {versions[-1]} is a warning"
        note = f"nothing names one: {all_of_them}, and names are not judged"
        if named.version is not None:
            note = f"{named.why}: {named.version}, a build between releases: {all_of_them}"
        note += f"; give --engine {named.engine}:VERSION"
        every = tuple(read_release(catalog, named.engine, v) for v in versions)
        return Judging(reader=_best_reader(every, launches, catalog), releases=every, note=note)
    around = releases_around(catalog, named.engine, named.version)
    if around == (named.version,):
        release = read_release(catalog, named.engine, named.version)
        return Judging(reader=release, releases=(release,), note=named.why)
    lacking = f"{named.why}: {named.version}, which the catalogue lacks"
    if around:
        both = tuple(read_release(catalog, named.engine, v) for v in around)
        note = f"{lacking}: judged by what {' and '.join(around)} have in common"
        return Judging(reader=_best_reader(both, launches, catalog), releases=both, note=note)
    if named.is_told:
        what = f"The catalogue has no {named.engine} {named.version}."
        raise StackError("--engine", what, nearest(named.version, versions))
    is_older = version_key(named.version) < version_key(versions[0])
    beyond = read_release(catalog, named.engine, versions[0] if is_older else versions[-1])
    note = f"{lacking}: read as the nearest; rules that depend on it are not judged; "
    note += f"give --engine {named.engine}:VERSION"
    return Judging(reader=beyond, releases=(), note=note)


def _best_reader(
    releases: Sequence[Release], launches: Sequence[Launch], catalog: Catalog
) -> Release:
    """The release that knows most of the flags; of equal ones the newest."""
    words = {
        word.text for launch in launches for word in launch.words if word.text.startswith("--")
    }

    def known(release: Release) -> int:
        flags = catalog.flags(release.flags_catalogue)
        return sum(canonical_flag(word, flags) is not None for word in words)

    return max(reversed(releases), key=known)


def release_of(image: Word) -> str | None:
    """The release that the tag of an engine's own image names, None for any other."""
    if image.open_names or not _OWN_IMAGES.search(repository_of(image.text)):
        return None
    tag = image.text.partition("@")[0].removeprefix(repository_of(image.text)).lstrip(":")
    found = VERSION.match(tag)
    return found[1] if found else None


def _hinted(hints: Sequence[Word], name: EngineName) -> Iterator[Named]:
    """The releases that images' tags or installed packages name, in their order."""
    for hint in hints:
        if match := _PACKAGE.fullmatch(hint.text):
            if match[1] == name:
                why = f"{hint.text} is installed"
                yield Named(engine=name, version=match[2], why=why, line=hint.line)
            continue
        own = _OWN_IMAGES.search(repository_of(hint.text))
        tag = hint.text.partition("@")[0].removeprefix(repository_of(hint.text)).lstrip(":")
        found = VERSION.match(tag)
        if own and found and own[1].startswith(name):
            why = f"the tag of {hint.text}"
            yield Named(engine=name, version=found[1], why=why, line=hint.line)
