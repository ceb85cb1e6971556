"""Processes that wait inside the kernel and cannot be killed: behind a dead mount, or a wedged driver."""

import os
import time
from typing import Callable, Dict, List, NamedTuple, Tuple

from ..host import Host

# A disk answers in less; who still waits, without having run in between, waits for something else.
PAUSE_S = 0.5
MAX_COMMAND = 300
MAX_ROWS = 64
KERNEL_THREAD = 0x00200000  # linux/sched.h PF_KTHREAD: they sleep so as they please
STATE, FLAGS = 0, 6
WAITING = "D"

Row = Dict[str, object]


class Thread(NamedTuple):
    """A thread of a process by their ids."""

    pid: int
    task: int


def stuck_processes(host: Host, pause: Callable[[float], None] = time.sleep) -> List[Row]:
    """Every thread that waits through two looks: process, thread, command line, where in the kernel."""
    first = _waiting(host)
    if not first:
        return []
    pause(PAUSE_S)
    second = _waiting(host)
    rows: List[Row] = []
    for thread in [thread for thread in first if second.get(thread) == first[thread]]:
        folder = "/proc/{}".format(thread.pid)
        command = _text(host, folder + "/cmdline").replace("\0", " ").strip()
        where = _text(host, "{}/task/{}/wchan".format(folder, thread.task)).strip()
        row: Row = {"pid": thread.pid, "task": thread.task, "command": command[:MAX_COMMAND]}
        row["where"] = "" if where == "0" else where
        rows.append(row)
    return rows[:MAX_ROWS]


def parse_state(text: str) -> Tuple[str, int]:
    """State and flags of /proc/PID/stat; the name in brackets may hold anything. ("", 0) for anything else."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= FLAGS or not fields[FLAGS].isdecimal():
        return "", 0
    return fields[STATE], int(fields[FLAGS])


def parse_switches(text: str) -> int:
    """How often a thread has left the processor, of /proc/PID/status."""
    counts = [
        line.partition(":")[2].strip() for line in text.splitlines() if "ctxt_switches" in line
    ]
    return sum(int(count) for count in counts if count.isdecimal())


def _waiting(host: Host) -> Dict[Thread, int]:
    """How often each thread that waits now has run."""
    found = {}
    for name in filter(str.isdigit, os.listdir(host.path("/proc"))):
        folder = "/proc/{}/task".format(name)
        try:
            tasks = os.listdir(host.path(folder))
        except OSError:  # it has ended meanwhile
            continue
        for task in tasks:
            state, flags = parse_state(_text(host, "{}/{}/stat".format(folder, task)))
            if state == WAITING and not flags & KERNEL_THREAD:
                status = _text(host, "{}/{}/status".format(folder, task))
                found[Thread(int(name), int(task))] = parse_switches(status)
    return found


def _text(host: Host, path: str) -> str:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""
