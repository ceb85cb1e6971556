"""What is recorded on hosts: the releases that `up` put there, whatever a stack file says by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import HostsFailed, InfraError, StackError
from infra.launch.fleet import (
    Fleet,
    Report,
    Request,
    all_reports,
    answers_when_known,
    ask_all,
    ask_reached,
)
from infra.remote.failures import HostFailure
from infra.render.host_paths import release_path
from infra.render.kept_release import KeptRelease, read_kept
from infra.render.release_record import RecordedProcess, Release, read_release

HASH_SHOWN = 12
UNFINISHED = "/var/lib/moe-infra/releases/%s/unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What hosts hold of a stack.

    Args:
        releases: the record by host.
        unfinished: by host, the hash of a release whose installation was begun and not ended.
    """

    releases: Mapping[str, Release]
    unfinished: Mapping[str, str]


def read_recorded(fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float) -> Recorded:
    """The record of each host that has one, and what was left half installed.

    Raises:
        HostsFailed: a host cannot be asked, or its record is damaged.
    """
    requests = _record_requests(hosts, stack)
    recorded, failures = _recorded_of(ask_all(fleet, requests, timeout_s=timeout_s), stack)
    all_reports({failure.host: failure.error for failure in failures})
    return recorded


def read_reached(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> tuple[Recorded, tuple[HostFailure, ...]]:
    """What hosts that can be asked hold, as `read_recorded` has it, and what is the matter with the others.

    One whose record is damaged is among the others: nobody knows what it holds.

    Raises:
        HostsFailed: of no host it is known what it holds.
    """
    requests = _record_requests(hosts, stack)
    reports, away = ask_reached(fleet, requests, timeout_s=timeout_s)
    recorded, damaged = _recorded_of(reports, stack)
    failures = (*away, *damaged)
    if len(failures) == len(hosts):
        all_reports({failure.host: failure.error for failure in failures})
    return recorded, failures


def _record_requests(hosts: Sequence[str], stack: str) -> dict[str, Request]:
    paths = [release_path(stack), UNFINISHED % stack]
    return {host: {"operation": "read", "paths": paths} for host in hosts}


def _recorded_of(
    reports: Mapping[str, Report], stack: str
) -> tuple[Recorded, tuple[HostFailure, ...]]:
    path, mark = release_path(stack), UNFINISHED % stack
    found: dict[str, Release] = {}
    unfinished: dict[str, str] = {}
    damaged: list[HostFailure] = []
    for host, report in reports.items():
        files = report.get("files")
        texts = files if isinstance(files, Mapping) else {}
        try:
            if texts.get(path) is not None:
                found[host] = read_release(host, stack, str(texts[path]))
        except HostsFailed as error:
            damaged.append(HostFailure(host, error))
        if texts.get(mark) is not None:
            unfinished[host] = str(texts[mark])
    return Recorded(releases=found, unfinished=unfinished), tuple(damaged)


def read_releases(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> dict[str, Release]:
    """The record of each host that has one, by host; see `read_recorded`."""
    return dict(read_recorded(fleet, hosts, stack, timeout_s=timeout_s).releases)


def stacks_there(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> tuple[str, ...]:
    """The other stacks of which those hosts that can be asked hold a release, by name."""
    request = {"operation": "releases", "stack": stack}
    found: set[str] = set()
    answers = answers_when_known(fleet, dict.fromkeys(hosts, request), timeout_s=timeout_s)
    for answer in answers.values():
        records = {} if isinstance(answer, InfraError) else answer.get("records")
        found |= set(records) if isinstance(records, Mapping) else set()
    return tuple(sorted(found - {stack}))


def kept_there(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> tuple[str, ...]:
    """The hashes of a stack's releases that those hosts keep which can be asked, newest first."""
    request = {"operation": "releases", "stack": stack}
    answers = answers_when_known(fleet, dict.fromkeys(hosts, request), timeout_s=timeout_s)
    found: dict[str, None] = {}
    for answer in answers.values():
        kept = None if isinstance(answer, InfraError) else answer.get("kept")
        found.update(dict.fromkeys(map(str, kept if isinstance(kept, list) else ())))
    return tuple(found)


def find_kept(
    fleet: Fleet, hosts: Sequence[str], wanted: tuple[str, str], *, timeout_s: float
) -> KeptRelease:
    """A release that hosts keep, whole, from the first host that has it.

    Args:
        fleet: the hosts.
        hosts: where to look; those that cannot be asked, or whose copy is damaged, are passed over while another one
            has it.
        wanted: the stack, and the release's hash or the beginning of it.
        timeout_s: limit per host.

    Raises:
        StackError: none or several begin so; what is there is listed.
        HostsFailed: no host can be asked, or the kept document is damaged.
    """
    stack, prefix = wanted
    request = {"operation": "releases", "stack": stack}
    answers = answers_when_known(fleet, dict.fromkeys(hosts, request), timeout_s=timeout_s)
    reports = {h: a for h, a in answers.items() if not isinstance(a, InfraError)}
    if not reports:
        all_reports(answers)
    keepers: dict[str, list[str]] = {}
    for host, report in reports.items():
        kept = report.get("kept")
        for name in kept if isinstance(kept, list) else []:
            keepers.setdefault(str(name), []).append(host)
    found = [name for name in keepers if name.startswith(prefix.lower())]
    if len(found) != 1:
        raise _not_one(stack, prefix, found or list(keepers), several=bool(found))
    failed: InfraError | None = None
    for host in keepers[found[0]]:
        asked = {host: {**request, "document": found[0]}}
        try:
            document = ask_all(fleet, asked, timeout_s=timeout_s)[host].get("document")
            return read_kept(host, document if isinstance(document, Mapping) else {})
        except HostsFailed as error:
            failed = failed or error
    raise failed if failed is not None else _not_one(stack, prefix, found, several=False)


def _not_one(stack: str, prefix: str, names: Sequence[str], *, several: bool) -> StackError:
    what = f"{'Several releases begin' if several else 'No release that hosts keep begins'} with {prefix!r}."
    listed = ", ".join(name[:HASH_SHOWN] for name in names)
    fix = (
        f"Newest first, there are {listed}."
        if names
        else f"None is kept of {stack}: `fab down` removes all; `fab up --stack {stack}` starts what its file says."
    )
    return StackError("--release", what, fix)


def units_of(
    releases: Mapping[str, Release], processes: Sequence[RecordedProcess] | None = None
) -> dict[str, dict[str, str]]:
    """Process id by unit, by host; of some processes or of all."""
    wanted = None if processes is None else {process.id for process in processes}
    found = {
        host: {p.unit: p.id for p in release.processes if wanted is None or p.id in wanted}
        for host, release in releases.items()
    }
    return {host: units for host, units in found.items() if units}
