"""The logs of a recorded deployment, merged by time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.errors import StackError
from infra.launch.fleet import Clock, Fleet, ask_all, rows_of
from infra.launch.releases import units_of
from infra.render.release_record import Release

FOLLOW_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, order=True)
class LogLine:
    """One line; `time_s` counts seconds since 1970."""

    time_s: float
    process: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which lines.

    Args:
        process: only this one, None for all.
        grep: only lines that match, None for all.
        lines: of each process.
        since: as journalctl takes it, None for the last lines whenever they were written.
    """

    process: str | None
    grep: str | None
    lines: int
    since: str | None


def read_logs(
    fleet: Fleet, releases: Mapping[str, Release], query: LogQuery, *, timeout_s: float
) -> list[LogLine]:
    """The lines that a query asks for, oldest first.

    Raises:
        StackError: there is no such process, or the expression is none.
        HostsFailed: a host cannot be asked.
    """
    units = _chosen_units(releases, query)
    requests = {
        host: {
            "operation": "journal",
            "units": list(names),
            "lines": query.lines * len(names),
            "since": query.since,
            "grep": query.grep,
        }
        for host, names in units.items()
    }
    return _lines(ask_all(fleet, requests, timeout_s=timeout_s), units)


def follow_logs(
    fleet: Fleet,
    releases: Mapping[str, Release],
    query: LogQuery,
    clock: Clock,
    *,
    timeout_s: float,
) -> Iterator[list[LogLine]]:
    """Lines as they are written, a batch at a time, for ever.

    Raises:
        StackError: there is no such process, or the expression is none.
        HostsFailed: a host cannot be asked.
    """
    units = _chosen_units(releases, query)
    batch = read_logs(fleet, releases, query, timeout_s=timeout_s)
    yield batch
    shown = set(batch)
    newest = {host: _newest(batch, names) for host, names in units.items()}
    while True:
        clock.sleep(FOLLOW_PAUSE_S)
        requests = {
            host: {
                "operation": "journal",
                "units": list(names),
                "lines": 100_000,
                "since": newest[host],
                "grep": query.grep,
            }
            for host, names in units.items()
        }
        found = _lines(ask_all(fleet, requests, timeout_s=timeout_s), units)
        fresh = [line for line in found if line not in shown]
        newest = {
            host: max(newest[host], _newest(fresh, names, 0.0)) for host, names in units.items()
        }
        # journalctl gives the second of `since` again: only those lines can come twice
        shown = {
            line
            for line in (*shown, *fresh)
            if line.time_s >= min(newest.values()) - FOLLOW_PAUSE_S
        }
        yield fresh


def _chosen_units(releases: Mapping[str, Release], query: LogQuery) -> dict[str, dict[str, str]]:
    if query.grep is not None:
        try:
            re.compile(query.grep)
        except re.error as error:
            what = f"{query.grep!r} is not an expression: {error}."
            raise StackError(
                "--grep", what, "Quote special characters with a backslash."
            ) from error
    everyone = [process for release in releases.values() for process in release.processes]
    chosen = [p for p in everyone if query.process in (None, p.id)]
    if not chosen and everyone:
        known = ", ".join(process.id for process in everyone)
        raise StackError("--rank", f"There is no process {query.process}.", f"There are {known}.")
    return units_of(releases, chosen)


def _lines(
    reports: Mapping[str, Mapping[str, object]], units: Mapping[str, Mapping[str, str]]
) -> list[LogLine]:
    found = [
        LogLine(
            float(str(row["time"])), units[host].get(str(row["unit"]), host), str(row["message"])
        )
        for host, report in reports.items()
        for row in rows_of(report, "journal")
    ]
    return sorted(found, key=lambda line: line.time_s)


def _newest(
    lines: Sequence[LogLine], units: Mapping[str, str], default: float | None = None
) -> float:
    """When the last line of some units was written; by default now."""
    own = [line.time_s for line in lines if line.process in units.values()]
    fallback = time.time() if default is None else default
    return max(own, default=fallback)
