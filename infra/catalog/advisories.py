"""Published holes of the engines' packages (`advisories/`), by release and by what of a plan they need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

from infra.catalog.read_releases import base_version
from infra.catalog.schema import Release
from infra.spec.plain_yaml import read_yaml

FOLDER = Path(__file__).parent / "advisories"
Package = Literal["vllm", "sglang"]

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_EARLY = re.compile(r"[.\-_]?(a|b|rc|dev|alpha|beta|pre)", re.IGNORECASE)
_POST = re.compile(r"[.\-]?post(\d{1,6})", re.IGNORECASE)
_NUM_PARTS = 4

ReleaseKey = tuple[tuple[int, ...], bool, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What has to be so in a plan; `advisories/README.md` has the words. None and () say nothing."""

    has_key: bool | None = None
    any_flag: tuple[str, ...] = ()
    no_flag: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    connectors: tuple[str, ...] = ()
    spans_hosts: bool = False
    takes_images: bool = False
    architectures: tuple[str, ...] = ()
    names_repository: bool = False
    program: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """One published hole, on the releases from `since` to before `before`, or through `through`."""

    id: str
    package: Package
    what: str
    source: str
    checked: date
    since: str | None = None
    before: str | None = None
    through: str | None = None
    when: Condition = field(default_factory=Condition)
    fix: str = ""

    def is_in(self, version: str) -> bool:
        """Whether a release of its package has it; a candidate of the fixed release still does."""
        key = release_key(version)
        if key is None:
            return False
        if self.since is not None and key < _known_key(self.since):
            return False
        if self.before is not None:
            return key < _known_key(self.before)
        return self.through is None or key <= _known_key(self.through)

    @property
    def mended(self) -> str | None:
        """The releases without it, in words; None where none is named."""
        if self.before is not None:
            return f"{self.package} {self.before} or later"
        return f"{self.package} after {self.through}" if self.through is not None else None


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
    rows: list[dict[str, object]] = read_yaml(FOLDER / f"{package}.yaml")
    return tuple(_advisory(package, row) for row in rows)


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


def _known_key(version: str) -> ReleaseKey:
    key = release_key(version)
    if key is None:
        message = f"infra/catalog/advisories names {version}, which is no release"
        raise AssertionError(message)
    return key


def _advisory(package: Package, row: Mapping[str, object]) -> Advisory:
    given = row.get("when", {})
    if not isinstance(given, Mapping):
        message = f"infra/catalog/advisories/{package}.yaml: {row.get('id')}: when is no map"
        raise TypeError(message)
    when = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return Advisory(**{**row, "package": package, "when": Condition(**when)})  # type: ignore[arg-type]  # read
