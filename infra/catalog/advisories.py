"""Published holes of the engines' packages (`advisories/`), by release and by what of a plan they need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictStr
from pydantic_core import PydanticCustomError

from infra.catalog.files import read_rows
from infra.catalog.read_releases import base_version
from infra.catalog.schema import Release
from infra.catalog.sourced import Entry

FOLDER = Path(__file__).parent / "advisories"
Package = Literal["vllm", "sglang"]

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_EARLY = re.compile(r"[.\-_]?(a|b|rc|dev|alpha|beta|pre)", re.IGNORECASE)
_POST = re.compile(r"[.\-]?post(\d{1,6})", re.IGNORECASE)
_NUM_PARTS = 4

ReleaseKey = tuple[tuple[int, ...], bool, int]


def _with_number(version: str) -> str:
    if release_key(version) is None:
        told_of = {"what": "is no release", "fix": "Write its number."}
        raise PydanticCustomError("form", "{what}", told_of)
    return version


NumberedRelease = Annotated[StrictStr, AfterValidator(_with_number)]


class Condition(Entry):
    """What has to be so in a plan; `advisories/README.md` has the words. None and () say nothing."""

    has_key: StrictBool | None = None
    any_flag: tuple[StrictStr, ...] = ()
    no_flag: tuple[StrictStr, ...] = ()
    env: dict[StrictStr, StrictStr | None] = Field(default_factory=dict)
    connectors: tuple[StrictStr, ...] = ()
    spans_hosts: StrictBool = False
    takes_images: StrictBool = False
    architectures: tuple[StrictStr, ...] = ()
    names_repository: StrictBool = False
    program: StrictStr | None = None


class Advisory(Entry):
    """One published hole, on the releases from `since` to before `before`, or through `through`.

    Args:
        next: the first release after `through` that was published.
    """

    id: StrictStr
    package: Package
    what: StrictStr
    source: StrictStr
    checked: date
    since: NumberedRelease | None = None
    before: NumberedRelease | None = None
    through: NumberedRelease | None = None
    next: NumberedRelease | None = None
    when: Condition = Field(default_factory=Condition)
    fix: StrictStr = ""

    def is_in(self, version: str) -> bool:
        """Whether a release of its package has it; a candidate of the fixed release still does."""
        key = release_key(version)
        if key is None:
            return False
        if self.since is not None and key < known_key(self.since):
            return False
        if self.before is not None:
            return key < known_key(self.before)
        return self.through is None or key <= known_key(self.through)

    def mended(self, releases: Iterable[str]) -> str | None:
        """The first release that is known to be without it; None where none is.

        Args:
            releases: others of its package that were published; the advisory's own are known anyway.
        """
        if self.before is not None:
            return self.before
        if self.through is None:
            return None
        published = [each for each in (self.next, *releases) if each and not self.is_in(each)]
        later = [each for each in published if known_key(each) > known_key(self.through)]
        return min(later, key=known_key, default=None)


def release_key(version: str) -> ReleaseKey | None:
    """What releases are compared by: candidates and builds in development come before their release.

    Returns:
        None for a name without a number (`nightly`).
    """
    match = _RELEASE.fullmatch(version.strip())
    if match is None:
        return None
    numbers = [int(part[:9]) for part in match[1].split(".")[:_NUM_PARTS]]
    post = _POST.match(match[2])
    padded = (*numbers, *[0] * (_NUM_PARTS - len(numbers)))
    return padded, _EARLY.match(match[2]) is None, int(post[1]) if post else 0


@cache
def advisories(package: Package) -> tuple[Advisory, ...]:
    """The published holes of a package, in the order of its file."""
    return read_rows(FOLDER / f"{package}.yaml", Advisory, package=package)


def advisories_of(package: Package, version: str) -> tuple[Advisory, ...]:
    """Those that a release has, whatever a plan does with it."""
    return tuple(each for each in advisories(package) if each.is_in(version))


def package_of(release: Release, version: str | None = None) -> tuple[Package, str]:
    """(package, its release) in which an engine's holes are published: vllm-ascend has those of its vLLM.

    Args:
        release: of the catalogue, the one that a plan is judged by.
        version: the engine's own where that is another one.
    """
    own = release.version if version is None else version
    if release.engine != "vllm-ascend":
        return release.family, own
    if version is None and release.base_version is not None:
        return release.family, release.base_version
    return release.family, base_version(own)


def known_key(version: str) -> ReleaseKey:
    """What a release of the catalogue is compared by."""
    key = release_key(version)
    if key is None:
        message = f"{version} was read as a release, and is none"
        raise AssertionError(message)
    return key
