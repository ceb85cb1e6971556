"""The releases that a rule, or a part of it, holds for: `vllm 0.33.0 and later; vision: vllm-ascend before 0.18.0`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple, get_args

from infra.catalog.versions import version_numbers

Engine = Literal["vllm", "vllm-ascend", "sglang"]


class ReleaseRange(NamedTuple):
    """Releases of one engine that follow each other, by the engine's own numbers: `0.22.1rc1` counts as 0.22.1.

    Args:
        since: the first of them; None for no beginning.
        before: the first after them; None for no end.
    """

    engine: Engine
    since: str | None = None
    before: str | None = None

    def contains(self, engine: str, version: str) -> bool:
        """Whether a release is one of them."""
        if engine != self.engine:
            return False
        if self.since is None and self.before is None:
            return True
        numbers = version_numbers(version)
        return (self.since is None or version_numbers(self.since) <= numbers) and (
            self.before is None or numbers < version_numbers(self.before)
        )

    def covers(self, other: ReleaseRange) -> bool:
        """Whether each release of another range is one of these, too."""
        if other.engine != self.engine:
            return False
        begins = self.since is None or (
            other.since is not None and version_numbers(self.since) <= version_numbers(other.since)
        )
        ends = self.before is None or (
            other.before is not None
            and version_numbers(other.before) <= version_numbers(self.before)
        )
        return begins and ends


Releases = tuple[ReleaseRange, ...]


def releases_of(*engines: Engine, since: str | None = None, before: str | None = None) -> Releases:
    """One range for each engine, with equal bounds.

    What vLLM's own code does, its plugin for Ascend does with the same numbers: they are those of the vLLM below.
    """
    return tuple(ReleaseRange(engine, since, before) for engine in engines)


EVERY: Releases = releases_of(*get_args(Engine))


@cache
def is_among(releases: Releases, engine: str, version: str) -> bool:
    """Whether a release lies in one of several ranges."""
    return any(each.contains(engine, version) for each in releases)


def described(releases: Releases) -> str:
    """Ranges in words, engines with equal bounds together; `all` for every release."""
    if releases == EVERY:
        return "all"
    engines: dict[str, list[str]] = {}
    for each in releases:
        engines.setdefault(_bounds(each), []).append(each.engine)
    every = "every " if len(engines) > 1 else ""
    return ", ".join(
        f"{' and '.join(names)} {bounds}" if bounds else every + ", ".join(names)
        for bounds, names in engines.items()
    )


def described_with_parts(releases: Releases, parts: Mapping[str, Releases]) -> str:
    """A rule's ranges in words, and those of its parts, by what they are about."""
    return "; ".join([described(releases), *(_clause(*part) for part in parts.items())])


def changed_clauses(
    releases: Releases, parts: Mapping[str, Releases], engine: str, versions: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What of a rule holds for the new version alone, then what for the old one alone; in words.

    Args:
        releases: the whole rule's.
        parts: those of its parts, by what they are about.
        engine: whose releases they are.
        versions: the old one, and the new one.
    """
    started: list[str] = []
    ceased: list[str] = []
    for about, ranges in {"": releases, **parts}.items():
        was, becomes = (is_among(ranges, engine, version) for version in versions)
        if was != becomes:
            own = tuple(each for each in ranges if each.engine == engine)
            (started if becomes else ceased).append(_clause(about, own))
    return tuple(started), tuple(ceased)


def _clause(about: str, releases: Releases) -> str:
    return f"{about}: {described(releases)}" if about else described(releases)


def _bounds(of: ReleaseRange) -> str:
    if of.since is None:
        return "" if of.before is None else f"before {of.before}"
    return f"{of.since} and later" if of.before is None else f"{of.since} to before {of.before}"
