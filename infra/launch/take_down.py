"""Takes a deployment down: watchers, router, prefill, decode, then everything that `up` put on the hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from infra.errors import HostsFailed
from infra.launch.answering import AnsweringFleet, read_each, refuse_silence
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Fleet, Report, ask_all, rows_of
from infra.launch.freed_devices import prove_free
from infra.launch.releases import HASH_SHOWN, Recorded, kept_there, read_reached, units_of
from infra.launch.supervision import tell_watchers
from infra.launch.unit_states import UnitState, read_units, units_request, why_ended
from infra.remote.failures import HostFailure
from infra.render.release_record import Release
from infra.render.units import REMOVAL_FAILS, REMOVAL_S, STOP_S

# Whoever sends requests stops first, whoever answers them last.
STOP_ORDER = ("edge", "router", "prefill", "decode", "unified")


Agree = Callable[[Recorded, Sequence[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenDown:
    """What became of a deployment.

    Args:
        was_there: whether there was anything to take down on the hosts that could be asked.
        away: hosts that could not be asked, or did not do all that they were asked, and why; what they hold is there
            still.
    """

    was_there: bool
    away: tuple[HostFailure, ...]


def take_down(
    fleet: Fleet, hosts: Sequence[str], stack: str, pace: Pace, agree: Agree | None = None
) -> TakenDown:
    """Stop and remove a stack on its hosts; what is gone already is left alone, and so are hosts out of reach.

    A host that is lost on the way, where a process does not stop, a container stays, somebody holds a device, or a file
    cannot be removed, is left as it is then; the others are taken down.

    Args:
        fleet: the hosts.
        hosts: every host that may hold something of the stack.
        stack: its name.
        pace: how long things may take, and where lines about the work go.
        agree: told what is there and the kept releases that go with it, before anything is stopped; it raises where
            that is not to be.

    Raises:
        HostsFailed: every host has failed.
    """
    limits = pace.limits
    fleet = AnsweringFleet(fleet)
    recorded, damaged = read_reached(fleet, hosts, stack, timeout_s=limits.ask_s)
    fleet.leave_out({failure.host: failure.error for failure in damaged})
    refuse_silence(fleet)
    releases = recorded.releases
    if agree is not None and (releases or recorded.unfinished):
        agree(recorded, kept_there(fleet, hosts, stack, timeout_s=limits.ask_s))
    # Before anything is stopped: what they would see end they would start again.
    tell_watchers(fleet, releases, "forget", stack, timeout_s=limits.ask_s)
    for role in STOP_ORDER:
        stop_role(fleet, releases, role, pace)
    _remove_containers(fleet, releases, pace)
    num_free = prove_free(fleet, releases, pace)
    removed, forgotten = _remove_files(fleet, hosts, stack, limits)
    refuse_silence(fleet)
    if releases or removed:
        num = len(hosts) - len(fleet.away)
        free = f", and nobody holds the {num_free} devices" if num_free else ""
        pace.say(f"{stack}: {removed} files removed from {num} hosts{free}")
    if forgotten:
        shown = ", ".join(name[:HASH_SHOWN] for name in forgotten)
        pace.say(
            f"{stack}: the releases kept there went, too ({shown}): `fab up` finds none for --release any more, "
            "and starts what the stack's file says"
        )
    return TakenDown(was_there=bool(releases or removed), away=fleet.failures)


def stop_role(fleet: Fleet, releases: Mapping[str, Release], role: str, pace: Pace) -> None:
    """Stop every process of a role, on all hosts at the same time.

    Raises:
        HostsFailed: one still runs afterwards, and the fleet leaves out nobody who fails.
    """
    processes = [p for release in releases.values() for p in release.processes if p.role == role]
    units = units_of(releases, processes)
    if not units:
        return
    pace.say(f"stopping {role}: {len(processes)} processes")
    limit = STOP_S + pace.limits.ask_s
    requests = {
        host: {**units_request("stop", list(names)), "timeout_s": STOP_S + pace.limits.ask_s / 2}
        for host, names in units.items()
    }
    reports = ask_all(fleet, requests, timeout_s=limit)

    def judge(host: str, report: Report) -> None:
        for state in read_units(host, report, units[host]).values():
            if not state.has_ended:
                words = f"{state.unit} does not stop: it is {state.active_state}; {report.get('message') or ''}"
                fix = f"Run `fab down --stack {releases[host].stack}` again: it goes on from what it finds."
                raise HostsFailed(f"{host} {state.process}", f"{words.rstrip('; ')}.", fix)

    read_each(fleet, reports, judge)


def _remove_containers(fleet: Fleet, releases: Mapping[str, Release], pace: Pace) -> None:
    """Remove containers that were kept because they failed.

    Raises:
        HostsFailed: one is still there, and the fleet leaves out nobody who fails.
    """
    units = {host: release.cleanup for host, release in releases.items() if release.cleanup}
    requests = {
        host: {**units_request("run", [unit]), "timeout_s": REMOVAL_S + pace.limits.ask_s / 2}
        for host, unit in units.items()
    }
    reports = ask_all(fleet, requests, timeout_s=REMOVAL_S + pace.limits.ask_s)

    def judge(host: str, report: Report) -> None:
        unit = units[host]
        (state,) = read_units(host, report, {unit: unit}).values()
        message = report.get("message")
        if state.load_state == "not-found":  # it went behind the containers
            return
        if state.active_state != "inactive" or message:
            words = f"Its containers are not removed: {_why_kept(state, message).rstrip('.')}."
            fix = (
                f"`ssh {host} sudo systemctl status {unit}` says more; where the runtime does not answer, start it "
                f"anew. Then run `fab down --stack {releases[host].stack}` again: its files are there still."
            )
            raise HostsFailed(host, words, fix)

    read_each(fleet, reports, judge)


def _why_kept(state: UnitState, message: object) -> str:
    """What the unit that removes containers has written at its end, else what systemd says of it."""
    if state.active_state != "failed":
        return f"{state.unit} is {state.active_state}; {message or 'it has not ended in time'}"
    # systemd's own words about its end stand behind them
    written = [line for line in state.log_tail if line.startswith(REMOVAL_FAILS)]
    return written[-1] if written else why_ended(state)


def _remove_files(
    fleet: Fleet, hosts: Sequence[str], stack: str, limits: Limits
) -> tuple[int, list[str]]:
    """Bring the files back to what was found; how many were removed, and the releases that hosts kept.

    A host has failed where one could not be, or somebody else has changed it since.
    """
    request = {
        "operation": "state",
        "mode": "rollback",
        "stack": stack,
        "groups": ["firewall", "files"],
        "items": [],
        "forgets_releases": True,
    }
    reports = ask_all(fleet, dict.fromkeys(hosts, request), timeout_s=limits.ask_s)
    read_each(fleet, reports, _refuse_left)
    forgotten: dict[str, None] = {}
    for report in reports.values():
        listed = report.get("forgotten_releases")
        forgotten.update(dict.fromkeys(map(str, listed if isinstance(listed, list) else [])))
    rows = [row for report in reports.values() for row in rows_of(report, "items")]
    return sum(row["state"] == "changed" for row in rows), list(forgotten)


def purge(fleet: Fleet, hosts: Sequence[str], stack: str, pace: Pace) -> None:
    """Remove what engines compiled, which a later start would find, from hosts where nothing of the stack is left.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    request = {"operation": "caches", "action": "clear", "stack": stack}
    reports = ask_all(fleet, dict.fromkeys(hosts, request), timeout_s=pace.limits.ask_s)
    size = sum(int(str(report.get("removed_bytes") or 0)) for report in reports.values())
    pace.say(
        f"{stack}: {size / 1e6:.0f} MB that engines had compiled removed from {len(reports)} hosts"
    )


def _refuse_left(host: str, report: Report) -> None:
    left = [row for row in rows_of(report, "items") if row["state"] in {"failed", "blocked"}]
    if left:
        reasons = "; ".join(f"{row['id']}: {row['why']}" for row in left)
        fix = "Look at them there and remove them by hand."
        raise HostsFailed(host, f"Left behind: {reasons}.", fix)
