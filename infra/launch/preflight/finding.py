"""A finding of the preflight: one check on one host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.launch.name_lists import listed

Severity = Literal["pass", "warn", "block"]
ORDER: tuple[Severity, ...] = ("block", "warn", "pass")
MAX_NAMED_HOSTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found on a host.

    Args:
        host: the plan's name of it.
        check: id of the check, what `--force` takes.
        severity: `block` refuses the start, `warn` is printed.
        observed: the fact, with the numbers in it.
        wanted: what it should be.
        fix: the command that mends it; empty for a pass.
    """

    host: str
    check: str
    severity: Severity
    observed: str
    wanted: str
    fix: str

    def as_document(self) -> dict[str, str]:
        """The row of `fab preflight --json`."""
        return {
            "host": self.host,
            "check": self.check,
            "severity": self.severity,
            "observed": self.observed,
            "wanted": self.wanted,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The same finding on several hosts, and of several checks where one cause keeps all of them from seeing."""

    hosts: tuple[str, ...]
    checks: tuple[str, ...]
    finding: Finding

    @property
    def fix(self) -> str:
        """What mends it, with HOST for the name where there are several."""
        fix = self.finding.fix
        return fix if len(self.hosts) == 1 else _for_any(self.finding, fix)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Blocking ones, then warnings, then passes; within each the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity)))


def grouped(findings: Sequence[Finding]) -> tuple[Grouped, ...]:
    """Equal findings of several checks of a host as one, and those of several hosts, in the order of the first."""
    of_host: dict[tuple[str, ...], list[Finding]] = {}
    for found in findings:
        of_host.setdefault((found.host, *_words(found)), []).append(found)
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Finding]] = {}
    for members in of_host.values():
        checks = tuple(dict.fromkeys(one.check for one in members))
        groups.setdefault((checks, _words(members[0])), []).append(members[0])
    return tuple(
        Grouped(hosts=tuple(one.host for one in members), checks=checks, finding=members[0])
        for (checks, _), members in groups.items()
    )


def blocking(findings: Iterable[Finding], forced: Sequence[str]) -> tuple[Finding, ...]:
    """The findings that refuse a start; `forced` are ids of checks that the operator overrules."""
    return tuple(
        finding
        for finding in findings
        if finding.severity == "block" and finding.check not in forced
    )


def preflight_document(stack: str, findings: Iterable[Finding]) -> dict[str, object]:
    """The document of `fab preflight`."""
    ordered = worst_first(findings)
    return {
        "schema_version": 1,
        "stack": stack,
        "ok": not blocking(ordered, ()),
        "findings": [finding.as_document() for finding in ordered],
    }


def _words(found: Finding) -> tuple[str, ...]:
    """What it says, whichever host it is about."""
    return found.severity, found.observed, found.wanted, _for_any(found, found.fix)


def _for_any(finding: Finding, text: str) -> str:
    return re.sub(rf"\b{re.escape(finding.host)}\b", "HOST", text)


def host_names(hosts: Sequence[str]) -> str:
    """A few names, and how many more."""
    return listed(hosts, MAX_NAMED_HOSTS)
