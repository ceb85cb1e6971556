"""What is recorded on hosts: the releases that `up` put there, whatever a stack file says by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.launch.fleet import Fleet, ask_all
from infra.render.host_paths import release_path
from infra.render.release_record import RecordedProcess, Release, read_release


def read_releases(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> dict[str, Release]:
    """The record of each host that has one, by host.

    Raises:
        HostsFailed: a host cannot be asked, or its record is damaged.
    """
    path = release_path(stack)
    requests = {host: {"operation": "read", "paths": [path]} for host in hosts}
    found: dict[str, Release] = {}
    for host, report in ask_all(fleet, requests, timeout_s=timeout_s).items():
        files = report.get("files")
        text = files.get(path) if isinstance(files, Mapping) else None
        if text is not None:
            found[host] = read_release(host, stack, str(text))
    return found


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
