"""What is kept of an epoch before the next one begins: enough to say why, bounded in time, size and number."""

import json
import os
import shutil
import time
from typing import Dict, List, NamedTuple, Set

from ..facts.command_lines import command_lines, text_of
from ..files import make_folders
from ..host import Host, Refused
from ..journal.lines import stamp
from ..journal.starts import Said, Start, read_starts
from .units import Unit

FOLDER = "/var/lib/moe-infra/evidence"
JOURNAL_S = 4.0
JOURNAL_ENTRIES = 300
MAX_JOURNAL_BYTES = 786432
MAX_PROCESSES = 400
MAX_COMMAND = 200
MAX_KEPT = 10
STATE_FIELD, PARENT_FIELD = 0, 1
# Asleep where no signal reaches it, stopped, traced, dead and not waited for: how hung processes look.
ODD_STATES = "DTtZ"
ASLEEP = "D"


class Ended(NamedTuple):
    """An epoch of a group that has ended on this host.

    Args:
        why: what ended it, as far as this host knows.
        units: its units as systemd has them now.
        invocations: systemd's id of each unit's start in it, as far as they are known.
        processes: lines about processes, taken before anything was stopped.
    """

    stack: str
    group: str
    epoch: int
    why: str
    units: Dict[str, Unit]
    invocations: Dict[str, str]
    processes: List[str]


def keep(host: Host, ended: Ended) -> str:
    """Write the evidence of an epoch; the folder. The disk may hold it up for ever, the journal for `JOURNAL_S`."""
    name = "{}-{}".format(ended.group.replace("/", "-"), ended.epoch)
    folder = host.path("{}/{}/{}".format(FOLDER, ended.stack, name))
    make_folders(folder)
    facts = {
        "schema_version": 1,
        "group": ended.group,
        "epoch": ended.epoch,
        "why": ended.why,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "units": {unit: {"state": one.state, "how": one.how} for unit, one in ended.units.items()},
        "processes": ended.processes,
    }
    with open(os.path.join(folder, "facts.json"), "w", encoding="utf-8") as stream:
        stream.write(json.dumps(facts, indent=1) + "\n")
    with open(os.path.join(folder, "journal.txt"), "wb") as stream:
        stream.write(_journal(host, ended).encode("utf-8")[-MAX_JOURNAL_BYTES:])
    _drop_oldest(os.path.dirname(folder))
    return folder


def processes_of(host: Host, units: List[Unit], limit_s: float) -> List[str]:
    """A line for each process below the units' main ones, and for each of the host that hangs."""
    rows: Dict[int, List[str]] = {}
    for name in filter(str.isdecimal, os.listdir(host.path("/proc"))):
        fields = text_of(host, "/proc/{}/stat".format(name)).rpartition(")")[2].split()
        if fields:
            rows[int(name)] = fields
    parents = {pid: int(fields[PARENT_FIELD]) for pid, fields in rows.items()}
    mine = {unit.pid for unit in units if unit.pid}
    shown = [
        pid
        for pid, fields in sorted(rows.items())
        if fields[STATE_FIELD] in ODD_STATES or _descends(pid, mine, parents)
    ][:MAX_PROCESSES]
    # those that wait in the kernel come last: others are read before one that does not answer
    in_order = sorted(shown, key=lambda pid: rows[pid][STATE_FIELD] == ASLEEP)
    commands = command_lines(host, in_order, limit_s)
    waits = {pid: text_of(host, "/proc/{}/wchan".format(pid)) or "-" for pid in shown}
    line = "{} {} waits in {}: {}"
    return [
        line.format(pid, rows[pid][STATE_FIELD], waits[pid], commands[pid][:MAX_COMMAND])
        for pid in shown
    ]


def _journal(host: Host, ended: Ended) -> str:
    """The words of this epoch's starts; where a start is not known, the last ones of its unit."""
    starts = {
        unit: _start_of(ended.invocations.get(unit, ""), now) for unit, now in ended.units.items()
    }
    try:
        said = read_starts(host, starts, JOURNAL_ENTRIES * len(starts), JOURNAL_S)
    except Refused as error:
        return "({})\n".format(error)
    return "".join(map(_line_of, said)) or "(nothing was written)\n"


def _start_of(invocation: str, now: Unit) -> Start:
    """The start that ended; systemd knows the main process of its latest one."""
    if invocation in ("", now.invocation):
        return Start(now.invocation, now.latest_pid)
    return Start(invocation)


def _line_of(said: Said) -> str:
    text = said.text.replace("\n", "\n    ")
    return "{} {}: {}\n".format(stamp(said.time_us), said.unit, text)


def _descends(pid: int, ancestors: Set[int], parents: Dict[int, int]) -> bool:
    seen = 0
    while pid in parents and seen < MAX_PROCESSES:
        if pid in ancestors:
            return True
        pid, seen = parents[pid], seen + 1
    return False


def _drop_oldest(folder: str) -> None:
    """Keep the newest folders of a stack."""
    found = [os.path.join(folder, name) for name in os.listdir(folder)]
    found.sort(key=lambda path: os.stat(path).st_mtime)
    for path in found[:-MAX_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
