"""The releases that a rule, or a part of it, holds for: `vllm 0.33.0 and later; on prefill 0.23.0 and later`."""

from __future__ import annotations

import re

from infra.catalog.versions import version_numbers

ENGINES = ("vllm-ascend", "sglang", "vllm")
_ENGINE_AT_END = re.compile(r"\s*(?:\b(?:vllm-ascend|sglang|vllm))?\s*\Z")
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:rc\d+)?")


def changed_clauses(
    releases: str, engine: str, old: str, new: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The clauses of a rule's `releases` that hold for the new version alone, then those for the old one alone.

    Args:
        releases: clauses divided by semicolons; each names engines (else it is about those before it) and bounds:
            `X and later`, `from X`, `up to X`, `before X`, or versions that it holds for exactly.
        engine: whose releases they are.
        old: a version.
        new: another.
    """
    started: list[str] = []
    ceased: list[str] = []
    about: frozenset[str] = frozenset(ENGINES)
    for clause in releases.split(";"):
        named = _named(clause)
        about = named or about
        if engine not in about or not _VERSION.search(clause):
            continue
        was, becomes = _holds(clause, engine, old), _holds(clause, engine, new)
        if was != becomes:
            (started if becomes else ceased).append(clause.strip())
    return tuple(started), tuple(ceased)


def _named(clause: str) -> frozenset[str]:
    words = set(re.findall(r"[a-z][a-z-]*", clause))
    return frozenset(name for name in ENGINES if name in words)


def _holds(clause: str, engine: str, version: str) -> bool:
    """Whether the part of a clause that speaks of an engine holds for a version of it."""
    mine = version_numbers(version)
    parts = [part for part in clause.split(",") if engine in _named(part)] or [clause]
    verdicts = [verdict for part in parts for verdict in _verdicts(part, mine)]
    return any(verdicts) if verdicts else True


def _verdicts(part: str, mine: tuple[int, int, int]) -> list[bool]:
    found = []
    for match in _VERSION.finditer(part):
        bound = version_numbers(match[0])
        before, after = _ENGINE_AT_END.sub("", part[: match.start()]), part[match.end() :].lstrip()
        if after.startswith("and later") or before.endswith(("from", "since")):
            found.append(mine >= bound)
        elif before.endswith("up to"):
            found.append(mine <= bound)
        elif before.endswith("before"):
            found.append(mine < bound)
        else:
            found.append(mine == bound)
    return found
