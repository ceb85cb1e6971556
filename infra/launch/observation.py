"""The state of a recorded deployment: its units, and whether their endpoints answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.engines.serving import HEALTH, MODELS
from infra.errors import HostsFailed, InfraError
from infra.launch.fleet import Fleet, Report, answers_when_known
from infra.launch.releases import units_of
from infra.launch.supervision import (
    FAILED,
    GroupState,
    led_elsewhere,
    read_groups,
    router_ends,
    watched_hosts,
    would_restart,
)
from infra.launch.unit_states import UnitState, read_units
from infra.remote.failures import HostFailure
from infra.render.host_paths import release_path
from infra.render.launch_script import NOT_INSTALLED_EXIT
from infra.render.release_record import RecordedProcess, Release, read_release

UNKNOWN = "unknown"
# Whoever looks at hosts waits 15 s for a dead one at most, and it is noticed after 12 s of silence.
AGAIN_S = 3.0
OK_STATUS = 200
KINDS = ("engine", "router", "edge")
FIRST_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One row of `status`.

    Args:
        ready: it runs, and its endpoint (or its group's, when it has none) answers.
        epoch: the number of its group's latest start; 0 for a router, and for what was never handed over.
            None where the host of rank 0, which alone knows it, cannot be asked; so are its restarts.
        restarts: how often its group was restarted by itself; a router, how often it was by systemd.
        devices: those that it holds; of these three, None where its host cannot be asked and never was.
        is_masked: somebody forbade systemd to start its unit.
        lacks_program: it ended because its program is not installed on its host.
        group: its group as the watchers have it, None for a router and for what was never handed over.
        is_watched: its host's watcher runs and was handed the host's ranks; None where that cannot be asked.
        ended: of a router, how its start before ended, "" where nobody has seen it.
        problem: why its host cannot be asked, None where it can; its state is then `unknown`.
    """

    id: str
    host: str
    unit: str
    kind: str
    state: str
    ready: bool
    since: str | None
    epoch: int | None
    restarts: int | None
    devices: tuple[int, ...] | None
    is_masked: bool
    lacks_program: bool
    group: GroupState | None
    is_watched: bool | None
    ended: str
    problem: InfraError | None

    @property
    def front_words(self) -> str:
        """What an operator should know of a router or an edge, "" while it runs as it was started and for engines."""
        if self.kind == "engine" or not (self.restarts or self.state == FAILED):
            return ""
        last = f"; the last time it {self.ended}" if self.ended else ""
        if self.state == FAILED:
            return f"given up: it ends again and again{last}. `fab up` starts it again"
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return f"restarted {times}{last}"

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
            "devices": None if self.devices is None else list(self.devices),
        }


def observe(
    fleet: Fleet, hosts: Sequence[str], stack: str, *, timeout_s: float
) -> tuple[ProcessStatus, ...]:
    """Every recorded process of a stack, engines in the order of the hosts, then the router, the edge last.

    One that is out of reach, or whose record is damaged, is a row of its own, `unknown`.
    """
    request = {
        "operation": "status",
        "record": release_path(stack),
        "stack": stack,
        "paths": {"engine": HEALTH, "router": MODELS, "edge": HEALTH},
    }
    reports: dict[str, Report] = {}
    rows: list[ProcessStatus] = []
    answers = answers_when_known(
        fleet, dict.fromkeys(hosts, request), timeout_s=timeout_s, again_s=AGAIN_S
    )
    for host, answer in answers.items():
        if isinstance(answer, InfraError):
            rows.append(_out_of_reach(host, answer))
        else:
            reports[host] = answer
    releases: dict[str, Release] = {}
    for host, report in reports.items():
        try:
            if report.get("record") is not None:
                releases[host] = read_release(host, stack, str(report["record"]))
        except HostsFailed as error:
            rows.append(_out_of_reach(host, error))
    rows += _rows(reports, releases)
    places = {host: place for place, host in enumerate(hosts)}
    return tuple(sorted(rows, key=lambda row: (KINDS.index(row.kind), places[row.host])))


def remembered(
    rows: Sequence[ProcessStatus], before: Sequence[ProcessStatus]
) -> tuple[ProcessStatus, ...]:
    """The rows, with what was known before of a host that is out of reach now."""
    found: list[ProcessStatus] = []
    for row in rows:
        known = [old for old in before if old.host == row.host and old.id != row.host]
        if row.state != UNKNOWN or not known:
            found.append(row)
            continue
        found += [replace(old, state=UNKNOWN, ready=False, problem=row.problem) for old in known]
    return tuple(sorted(found, key=lambda row: KINDS.index(row.kind)))


def kind_of(process: str) -> str:
    """Which kind of process an id names; hosts' own names are those of engines."""
    name = process.partition("/")[0]
    return name if name in KINDS else "engine"


def status_document(stack: str, rows: Sequence[ProcessStatus]) -> dict[str, object]:
    """The document of `up` and `status`."""
    engines = [row for row in rows if row.kind == "engine"]
    fronts = {row.kind: row.as_document() for row in rows if row.kind != "engine"}
    return {
        "schema_version": 1,
        "stack": stack,
        "ok": bool(engines) and all(row.ready for row in rows) and not unwatched(rows),
        "processes": [row.as_document() for row in engines],
        "router": fronts.get("router"),
        "edge": fronts.get("edge"),
        "groups": [state.as_document() for state in group_states(rows)],
    }


def group_states(rows: Sequence[ProcessStatus]) -> tuple[GroupState, ...]:
    """The groups of some rows, each once."""
    found = {row.group.group: row.group for row in rows if row.group is not None}
    return tuple(found.values())


def unwatched(rows: Sequence[ProcessStatus]) -> tuple[ProcessStatus, ...]:
    """The engines that nobody would start again: not handed over to watchers, or those have not met.

    `fab up` does not count such a deployment as up, and neither does `fab status`: docs/decisions.md 70.
    """
    return tuple(
        row
        for row in rows
        if row.kind == "engine" and not would_restart(is_watched=row.is_watched, group=row.group)
    )


def status_row(
    devices: tuple[int, ...],
    state: UnitState,
    group: GroupState | None,
    *,
    ready: bool,
    is_watched: bool,
) -> ProcessStatus:
    """The row of one process whose host answers."""
    is_given_up = group is not None and group.phase == FAILED and not state.is_running
    return ProcessStatus(
        id=state.process,
        host=state.host,
        unit=state.unit,
        kind=kind_of(state.process),
        state="failed" if is_given_up else state.state,
        ready=ready,
        since=state.since,
        epoch=0 if group is None else group.epoch,
        restarts=state.restarts if group is None else group.restarts,
        devices=devices,
        is_masked=state.is_masked,
        lacks_program=state.exit_status == NOT_INSTALLED_EXIT and state.active_state != "active",
        group=group,
        is_watched=is_watched,
        ended="",
        problem=None,
    )


def unknown_hosts(rows: Sequence[ProcessStatus]) -> tuple[HostFailure, ...]:
    """The hosts of which nothing is known, and why."""
    found = {
        row.host: row.problem for row in rows if row.state == UNKNOWN and row.problem is not None
    }
    return tuple(HostFailure(host, problem) for host, problem in found.items())


def _rows(reports: Mapping[str, Report], releases: Mapping[str, Release]) -> list[ProcessStatus]:
    """The rows of the hosts that answered."""
    states: dict[str, UnitState] = {}
    answering: set[str] = set()
    for host, units in units_of(releases).items():
        states.update(read_units(host, reports[host], units))
        answers = reports[host].get("answers")
        for process, status in (answers if isinstance(answers, Mapping) else {}).items():
            if _is_answer(status, str(process)):
                answering.add(str(process))
    everyone = [process for release in releases.values() for process in release.processes]
    groups, routers = read_groups(reports.values()), router_ends(reports.values())
    watched = watched_hosts(reports)
    elsewhere = {host: led_elsewhere(report) for host, report in reports.items()}
    rows = []
    for process in everyone:
        state = states[process.id]
        row = status_row(
            process.devices,
            state,
            groups.get(process.group),
            ready=_is_ready(process, everyone, answering, states),
            is_watched=state.host in watched,
        )
        if row.group is None and process.group in elsewhere[state.host]:
            row = replace(row, epoch=None, restarts=None)
        rows.append(replace(row, ended=routers.get(process.id, "")))
    return rows


def _is_answer(status: object, process: str) -> bool:
    """Engines are healthy or not; a router or an edge that wants a key of clients answers all the same."""
    if kind_of(process) != "engine":
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


def _out_of_reach(host: str, error: InfraError) -> ProcessStatus:
    """The row of a host that cannot be asked: what runs there is not known."""
    return ProcessStatus(
        id=host,
        host=host,
        unit="",
        kind="engine",
        state=UNKNOWN,
        ready=False,
        since=None,
        epoch=None,
        restarts=None,
        devices=None,
        is_masked=False,
        lacks_program=False,
        group=None,
        is_watched=None,
        ended="",
        problem=error,
    )
