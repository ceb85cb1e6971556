"""What is kept of an epoch before the next one begins: enough to say why, bounded in time, size and number."""

import json
import os
import shutil
import time
from typing import Dict, List, NamedTuple, Set

from ..facts.abandoned import within
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
STATE_FIELD, PARENT_FIELD = 1, 2
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
    """A line for each process below the units' main ones, and for each of the host that hangs.

    The kernel reads a command line under a lock that a process in a wedged driver may hold for ever. What has not
    been read by then is a program's name in brackets, as `ps` shows it; the last line names what did not answer.
    """
    look = _Look(host)
    try:
        within(limit_s, lambda: look.take({unit.pid for unit in units if unit.pid}))
    except Refused as error:
        return [*look.lines.values(), "({}: {})".format(look.reading, error)]
    except OSError as error:
        return ["({}: {})".format(look.reading, error.strerror)]
    return list(look.lines.values())


class _Look:
    """What is known of processes while they are looked at.

    Attributes:
        lines: by process id, in their order.
        reading: the file that is being read.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.lines: Dict[int, str] = {}
        self.reading = "/proc"

    def take(self, mine: Set[int]) -> None:
        """Look at all of the host; those that wait in the kernel come last."""
        rows: Dict[int, List[str]] = {}
        for name in os.listdir(self._host.path("/proc")):
            if name.isdecimal():
                program, _, fields = self._read(int(name), "stat").rpartition(")")
                if fields:
                    rows[int(name)] = [program.partition("(")[2], *fields.split()]
        parents = {pid: int(row[PARENT_FIELD]) for pid, row in rows.items()}
        shown = [
            pid
            for pid, row in sorted(rows.items())
            if row[STATE_FIELD] in ODD_STATES or _descends(pid, mine, parents)
        ][:MAX_PROCESSES]
        waits = {pid: self._read(pid, "wchan") or "-" for pid in shown}
        begins = {
            pid: "{} {} waits in {}: ".format(pid, rows[pid][STATE_FIELD], waits[pid])
            for pid in shown
        }
        self.lines = {pid: "{}[{}]".format(begins[pid], rows[pid][0]) for pid in shown}
        for pid in sorted(shown, key=lambda pid: rows[pid][STATE_FIELD] == ASLEEP):
            command = self._read(pid, "cmdline").replace("\0", " ").strip()[:MAX_COMMAND]
            if command:
                self.lines[pid] = begins[pid] + command

    def _read(self, pid: int, name: str) -> str:
        """A file of a process, "" for one that has ended."""
        self.reading = "/proc/{}/{}".format(pid, name)
        try:
            return self._host.read_bytes(self.reading).decode("utf-8", "replace")
        except OSError:
            return ""


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


def _drop_oldest(folder: str) -> None:
    """Keep the newest folders of a stack."""
    found = [os.path.join(folder, name) for name in os.listdir(folder)]
    found.sort(key=lambda path: os.stat(path).st_mtime)
    for path in found[:-MAX_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
