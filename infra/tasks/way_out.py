"""What `fab status` says below its table: what is wrong with each group and the router, and the way out of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from infra.engines.haproxy import PACKAGE
from infra.errors import NotReady
from infra.launch.name_lists import listed
from infra.launch.observation import UNKNOWN, ProcessStatus, group_states, unwatched
from infra.launch.supervision import FAILED, MEETS, STOPS, GroupState
from infra.launch.unit_states import WAITING, unmask_command
from infra.remote.failures import MAY_BE_GONE, HostFailure
from infra.render.edge_files import EDGE_PROGRAM

# How `awaited` in infra/agent/group/rules.py, `_left` in part.py, remains.py and kept_record.py beside it put it.
_SILENT = re.compile(r"(\S+) (?:is silent|has not been heard of)$")
_HELD = re.compile(r"(\S+): port (\d+)\b.* is held$")
_OUTLIVED = re.compile(r"^(\S+): .*\bprocess (\d+) \(.*\) of \S+ has outlived its unit\b")
_UNTOLD = re.compile(r"^(\S+): .*: what is left of (\w+)'s containers is not known")
_UNWRITTEN = re.compile(r"^(\S+): (?:.*; )?(/\S+) cannot be written: ([^;]+)")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
LOADS = (
    "Its ranks load; should one end or hang, they are started again by themselves: nothing to type."
)


def told(rows: Sequence[ProcessStatus], again: str) -> list[str]:
    """A line for each group, router and edge that does not run as started, and one for ranks that nobody watches.

    Args:
        rows: of every process.
        again: the options that choose the same stack and inventory.
    """
    lines = [line for state in group_states(rows) if (line := _group_line(state, rows, again))]
    lines += [line for row in rows if row.kind != "engine" and (line := _front_line(row, again))]
    failures = not_watched(rows, again)
    if failures:
        hosts, error = ", ".join(failure.host for failure in failures), failures[0].error
        lines.append(f"{hosts}: {error.what} {error.fix}")
    return lines


def not_watched(rows: Sequence[ProcessStatus], again: str) -> tuple[HostFailure, ...]:
    """The hosts with ranks whose watcher does not run, or was handed nothing; for the table and for `--json`."""
    hosts = [row.host for row in unwatched(rows) if row.is_watched is False]
    what = "Nobody watches the ranks there, so nobody would start them again."
    fix = f"`fab up {again}` goes on from what it finds, proves every rank and has them watched."
    return tuple(HostFailure(host, NotReady(host, what, fix)) for host in dict.fromkeys(hosts))


def out_of_reach(row: ProcessStatus, again: str) -> str:
    """The line of a host that cannot be asked."""
    line = f"Out of reach: {row.problem}"
    if isinstance(row.problem, MAY_BE_GONE):
        line += f" If it does not come back: `fab replace-host {row.host} NEW {again}`."
    return line


def next_words(rows: Sequence[ProcessStatus], half: Collection[str], again: str) -> str:
    """The command to type next.

    Args:
        rows: of every process, as far as hosts can be asked.
        half: hosts on which a release was not installed to the end.
        again: the options that choose the same stack and inventory.
    """
    if any(row.state == UNKNOWN for row in rows):
        return f"fab status {again}"
    waiting = [row for row in rows if not row.ready]
    if half or unwatched(rows) or any(_wants_up(row) for row in waiting):
        return f"fab up {again}"
    states = group_states(rows)
    for state in states:
        if state.phase == FAILED:
            return _restart(state, again)
    is_queued = bool(waiting) and all(row.state == WAITING for row in waiting)
    if is_queued or any(state.phase == STOPS for state in states):
        return f"fab status {again} --watch"
    return f"fab logs {again} --rank {waiting[0].id}" if waiting else f"fab verify {again}"


def _group_line(state: GroupState, rows: Sequence[ProcessStatus], again: str) -> str:
    """What is the matter with a group and the way out, "" for nothing."""
    own = [row for row in rows if row.group == state]
    waits = any(not row.ready for row in own)
    if not state.words and not waits:
        return ""
    line = f"{state.group}, epoch {state.epoch}: {(state.words or 'not ready').removesuffix('.')}."
    if any(row.is_watched is False for row in own):
        return line  # what is said of its hosts is the way out
    loads = (_queued(own, "its ranks") or LOADS) if waits else ""
    way_out = _way_out(state, again, loads=loads, unmasks=_unmask(own))
    return f"{line} {way_out}" if way_out else line


def _way_out(state: GroupState, again: str, *, loads: str, unmasks: str) -> str:
    """What to type, or that nothing is to be typed.

    Args:
        state: the group.
        again: the options that choose the same stack and inventory.
        loads: what is said while its ranks start, "" when all are ready.
        unmasks: has systemd start units again that are masked, "" where none is.
    """
    if state.phase == FAILED:
        role = state.group.partition("/")[0]
        more = unmasks or f"`fab logs {again} --role {role}` says more"
        return (
            f"Nobody starts it again but you: {more}; "
            f"when that is mended, `{_restart(state, again)}`."
        )
    if state.phase == MEETS:
        return f"Until then nobody would start it again. `fab up {again}` has it watched, and says what is in the way."
    if unmasks:
        return f"Somebody masked a unit of it; until that is undone it does not start: {unmasks}."
    if state.phase == STOPS:
        return _while_stopped(state, again)
    return loads


def _while_stopped(state: GroupState, again: str) -> str:
    """When a group that is between two starts begins again, and what may keep it from doing so."""
    unwritten = [match for reason in state.waits_for if (match := _UNWRITTEN.search(reason))]
    if unwritten:
        return " ".join(_while_unwritten(*match.groups()) for match in unwritten)
    found = [match for reason in state.waits_for if (match := _SILENT.search(reason))]
    if found:
        hosts = [match[1] for match in found]
        replaces = ", ".join(f"`fab replace-host {host} NEW {again}`" for host in hosts)
        return (
            f"It starts again by itself as soon as {' and '.join(hosts)} can be heard: nothing to type. "
            f"If that does not come about: {replaces}."
        )
    held = [match for reason in state.waits_for if (match := _HELD.search(reason))]
    if held:
        host, port = held[0][1], held[0][2]
        return (
            f"It starts again by itself as soon as that is free: `ssh {host} sudo ss -Hltnp 'sport = :{port}'` "
            "says who holds it."
        )
    outlived = [match for reason in state.waits_for if (match := _OUTLIVED.search(reason))]
    if outlived:
        host, pid = outlived[0][1], outlived[0][2]
        return (
            f"It starts again by itself as soon as that process has ended: `ssh {host} sudo cat /proc/{pid}/stack` "
            f"says what it waits for; where `ssh {host} sudo kill -9 {pid}` does nothing, only a reboot ends it."
        )
    untold = [match for reason in state.waits_for if (match := _UNTOLD.search(reason))]
    if untold:
        host, runtime = untold[0][1], untold[0][2]
        return (
            f"It starts again by itself as soon as {runtime} answers there: `ssh {host} sudo {runtime} ps` says why it "
            "does not."
        )
    when = f", {state.pause_s:g} s after its end" if state.pause_s else ""
    return f"It starts again by itself{when}: nothing to type."


def _while_unwritten(host: str, folder: str, why: str) -> str:
    """What has to be done about a disk that does not take a group's record, and what follows then."""
    if why.startswith(_NO_ROOM):
        todo = (
            f"Make room on the disk of {folder} on {host}: `ssh {host} df -h {folder}` names the disk, "
            f"`ssh {host} 'sudo du -xhd 2 $(df --output=target {folder} | tail -n 1) | sort -h | tail'` what fills it."
        )
    elif why.startswith("Read-only file system"):
        todo = (
            f"Have {folder} on {host} mounted for writing again: `ssh {host} findmnt -T {folder}` names the mount, "
            f"`ssh {host} 'sudo dmesg | tail'` says what befell its disk."
        )
    else:
        todo = (
            f"Mend the disk of {folder} on {host}: `ssh {host} findmnt -T {folder}` names the disk, "
            f"`ssh {host} 'sudo dmesg | tail'` says what befell the disk."
        )
    return f"The group does not start until that is mended. {todo} Then it starts again by itself."


def _queued(rows: Sequence[ProcessStatus], them: str) -> str:
    """Where systemd has the start of processes wait, "" where it does not."""
    hosts = list(dict.fromkeys(row.host for row in rows if row.state == WAITING))
    if not hosts:
        return ""
    return (
        f"On {listed(hosts)} systemd starts something else first, then {them} by itself: "
        f"`ssh {hosts[0]} systemctl list-jobs` says what."
    )


def _unmask(rows: Sequence[ProcessStatus]) -> str:
    """What to type where units of processes that are not ready are masked, "" where none is."""
    masked: dict[str, list[str]] = {}
    for row in rows:
        if row.is_masked and not row.ready:
            masked.setdefault(row.host, []).append(row.unit)
    return ", ".join(f"`{unmask_command(host, units)}`" for host, units in masked.items())


def _restart(state: GroupState, again: str) -> str:
    role, _, replica = state.group.partition("/")
    return f"fab restart {again} --role {role} --replica {replica}"


def _wants_up(row: ProcessStatus) -> bool:
    """Whether a router or an edge has ended, and nobody but `fab up` starts it."""
    return row.kind != "engine" and row.state in {FAILED, "inactive", "not-installed"}


def _front_line(row: ProcessStatus, again: str) -> str:
    if row.lacks_program and row.kind == "edge":
        fix = f"Install it: {EDGE_PROGRAM['fix']}; then `fab up {again}` starts it."
        return f"{row.id}: {PACKAGE} is not on {row.host}. {fix}"
    if row.lacks_program:
        named = f"`fab logs {again} --role {row.kind}` names the package"
        return f"{row.id}: its program is not on {row.host}. {named}; with that installed, `fab up {again}` starts it."
    line = f"{row.id}: {row.front_words}." if row.front_words else ""
    if row.ready or row.state == FAILED:
        return line
    if row.state == WAITING:
        return f"{row.id}: {_queued([row], 'it')}"
    if _wants_up(row):
        way_out = f"{row.id}: it does not run. `fab up {again}` starts it."
    elif row.is_watched and row.kind == "router":
        way_out = (
            f"{row.id}: it does not answer. Should it end or stay so, it is started again by itself: "
            "nothing to type."
        )
    else:
        way_out = (
            f"{row.id}: it does not answer. Should it end, it is started again by itself; should it stay so: "
            f"`ssh {row.host} sudo systemctl restart {row.unit}`."
        )
    words = way_out.partition(": ")[2]
    return f"{line} {words[0].upper()}{words[1:]}" if line else way_out
