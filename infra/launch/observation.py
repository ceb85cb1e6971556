"""The state of a recorded deployment: its units, and whether their endpoints answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.engines.serving import HEALTH, MODELS
from infra.launch.fleet import Fleet, all_reports, rows_of
from infra.launch.probing import HEALTH_S, SLACK_S
from infra.launch.releases import read_releases, read_unit_states, units_of
from infra.launch.unit_states import UnitState
from infra.render.release_record import RecordedProcess, Release

OK_STATUS = 200
FIRST_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One row of `status`.

    Args:
        ready: it runs, and its endpoint (or its group's, when it has none) answers.
        epoch: how often its group has been restarted as one; 0 until groups are.
    """

    id: str
    host: str
    unit: str
    kind: str
    state: str
    ready: bool
    since: str | None
    epoch: int
    restarts: int
    devices: tuple[int, ...]

    def as_document(self) -> dict[str, object]:
        """The row of `up --json` and `status --json`."""
        return {
            "id": self.id,
            "host": self.host,
            "unit": self.unit,
            "state": self.state,
            "ready": self.ready,
            "since": self.since,
            "epoch": self.epoch,
            "restarts": self.restarts,
            "devices": list(self.devices),
        }


def observe(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> tuple[ProcessStatus, ...]:
    """Every recorded process of a stack, engines in the order of the hosts, the router last.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    releases = read_releases(fleet, hosts, stack, timeout_s=timeout_s)
    states = read_unit_states(fleet, units_of(releases), timeout_s=timeout_s)
    answering = _answering(fleet, releases, states, timeout_s)
    rows = [
        _status(
            process, host, states[process.id], _is_ready(process, release_rows, answering, states)
        )
        for release_rows in [[p for release in releases.values() for p in release.processes]]
        for host, release in releases.items()
        for process in release.processes
    ]
    return tuple(sorted(rows, key=lambda row: row.kind == "router"))


def status_document(stack: str, rows: Sequence[ProcessStatus]) -> dict[str, object]:
    """The document of `up` and `status`."""
    engines = [row for row in rows if row.kind == "engine"]
    router = next((row for row in rows if row.kind == "router"), None)
    return {
        "schema_version": 1,
        "stack": stack,
        "ok": bool(engines) and all(row.ready for row in rows),
        "processes": [row.as_document() for row in engines],
        "router": None if router is None else router.as_document(),
    }


def _answering(
    fleet: Fleet, releases: Mapping[str, Release], states: Mapping[str, UnitState], timeout_s: float
) -> set[str]:
    """Processes whose endpoint answers; asked from their own hosts."""
    probes: dict[str, list[dict[str, object]]] = {}
    for host, release in releases.items():
        for process in release.processes:
            if process.endpoint is not None and states[process.id].is_running:
                path = HEALTH if process.kind == "engine" else MODELS
                step = {"method": "GET", "url": process.endpoint + path, "timeout_s": HEALTH_S}
                probe: dict[str, object] = {"id": process.id, "steps": [step]}
                probes.setdefault(host, []).append(probe)
    requests = {
        host: {"operation": "probe", "probes": listed, "parallel": len(listed)}
        for host, listed in probes.items()
    }
    reports = all_reports(fleet.ask(requests, timeout_s=timeout_s + SLACK_S))
    return {
        str(row["id"])
        for report in reports.values()
        for row in rows_of(report, "probes")
        if any(_is_answer(step.get("status"), str(row["id"])) for step in rows_of(row, "steps"))
    }


def _is_answer(status: object, process: str) -> bool:
    """Engines are healthy or not; a router that wants a key of clients answers all the same."""
    if process.startswith("router/"):
        return isinstance(status, int) and status < FIRST_SERVER_ERROR
    return status == OK_STATUS


def _is_ready(
    process: RecordedProcess,
    everyone: Sequence[RecordedProcess],
    answering: set[str],
    states: Mapping[str, UnitState],
) -> bool:
    """A process without an endpoint is as ready as those of its group that have one."""
    if states[process.id].active_state != "active":
        return False
    if process.endpoint is not None:
        return process.id in answering
    leaders = [p for p in everyone if p.group == process.group and p.endpoint is not None]
    return bool(leaders) and all(leader.id in answering for leader in leaders)


def _status(process: RecordedProcess, host: str, state: UnitState, ready: bool) -> ProcessStatus:  # noqa: FBT001
    return ProcessStatus(
        id=process.id,
        host=host,
        unit=process.unit,
        kind=process.kind,
        state=state.state,
        ready=ready,
        since=state.since,
        epoch=0,
        restarts=state.restarts,
        devices=process.devices,
    )
