"""What is kept of an epoch before the next one begins: enough to say why, bounded in time, size and number."""

import json
import os
import shutil
import time
from typing import Dict, List, NamedTuple, Set

from ..files import make_folders
from ..host import Host, Refused
from ..journal.lines import stamp
from ..journal.starts import Said, read_starts
from .units import Unit

FOLDER = "/var/lib/moe-infra/evidence"
JOURNAL_S = 4.0
JOURNAL_ENTRIES = 300
MAX_JOURNAL_BYTES = 786432
MAX_PROCESSES = 400
MAX_COMMAND = 200
MAX_KEPT = 10
PARENT_FIELD = 1
# Asleep where no signal reaches it, stopped, traced, dead and not waited for: how hung processes look.
ODD_STATES = "DTtZ"


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
    """Write the evidence of an epoch; the folder. Takes at most five seconds."""
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


def processes_of(host: Host, units: List[Unit]) -> List[str]:
    """A line for each process below the units' main ones, and for each of the host that hangs."""
    rows: Dict[int, List[str]] = {}
    parents: Dict[int, int] = {}
    for name in os.listdir(host.path("/proc")):
        if name.isdecimal():
            fields = _stat_fields(host, name)
            if fields:
                rows[int(name)] = fields
                parents[int(name)] = int(fields[PARENT_FIELD])
    mine = {unit.pid for unit in units if unit.pid}
    shown = [
        pid
        for pid, fields in sorted(rows.items())
        if fields[0] in ODD_STATES or _descends(pid, mine, parents)
    ]
    return [_line(host, pid, rows[pid]) for pid in shown[:MAX_PROCESSES]]


def _journal(host: Host, ended: Ended) -> str:
    """The words of this epoch's starts; where a start is not known, the last ones of its unit."""
    starts = {
        unit: ended.invocations.get(unit) or now.invocation for unit, now in ended.units.items()
    }
    try:
        said = read_starts(host, starts, JOURNAL_ENTRIES * len(starts), JOURNAL_S)
    except Refused as error:
        return "({})\n".format(error)
    return "".join(map(_line_of, said)) or "(nothing was written)\n"


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


def _stat_fields(host: Host, pid: str) -> List[str]:
    try:
        text = host.read_bytes("/proc/{}/stat".format(pid)).decode("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _line(host: Host, pid: int, fields: List[str]) -> str:
    waits = _read(host, "/proc/{}/wchan".format(pid)) or "-"
    command = _read(host, "/proc/{}/cmdline".format(pid)).replace("\0", " ").strip()
    return "{} {} waits in {}: {}".format(pid, fields[0], waits, command[:MAX_COMMAND])


def _read(host: Host, path: str) -> str:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _drop_oldest(folder: str) -> None:
    """Keep the newest folders of a stack."""
    found = [os.path.join(folder, name) for name in os.listdir(folder)]
    found.sort(key=lambda path: os.stat(path).st_mtime)
    for path in found[:-MAX_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
