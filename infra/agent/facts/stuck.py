"""Processes that wait inside the kernel and cannot be killed: behind a dead mount, or a wedged driver."""

import os
import time
from typing import Callable, Dict, List, NamedTuple, Tuple

from ..host import Host
from .command_lines import command_lines, text_of

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
    stuck = sorted(one for one in first if second.get(one) == first[one])[:MAX_ROWS]
    commands = command_lines(host, list(dict.fromkeys(thread.pid for thread in stuck)))
    rows: List[Row] = []
    for thread in stuck:
        where = text_of(host, "/proc/{}/task/{}/wchan".format(thread.pid, thread.task)).strip()
        row: Row = {"pid": thread.pid, "task": thread.task}
        row["command"] = commands[thread.pid][:MAX_COMMAND]
        row["where"] = "" if where == "0" else where
        rows.append(row)
    return rows


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
            state, flags = parse_state(text_of(host, "{}/{}/stat".format(folder, task)))
            if state == WAITING and not flags & KERNEL_THREAD:
                status = text_of(host, "{}/{}/status".format(folder, task))
                found[Thread(int(name), int(task))] = parse_switches(status)
    return found
