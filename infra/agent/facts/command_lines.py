"""Command lines of processes, also of those that cannot be read.

The kernel reads one under a lock that a process in a wedged driver may hold for ever.
"""

import contextlib
import threading
import time
from typing import Dict, List

from ..host import Host

# One that does not answer holds up those behind it for so long, and all of them together for so long.
PATIENCE_S, LIMIT_S = 0.1, 1.0
SILENT = " (no answer)"


def command_lines(host: Host, pids: List[int], limit_s: float = LIMIT_S) -> Dict[int, str]:
    """How each process was called.

    Args:
        host: this host.
        pids: in the order in which they are read.
        limit_s: for all together.

    Returns:
        By process id. Where it is empty the program's name in brackets, as `ps` shows it; where it was not read in
        time, that is said behind the name. "" for a process that has ended.
    """
    left = list(reversed(pids))
    found: Dict[int, str] = {}
    all_read = threading.Event()

    def read() -> None:
        while left:
            with contextlib.suppress(IndexError):  # another reader has taken the last one
                pid = left.pop()
                path = "/proc/{}/cmdline".format(pid)
                found[pid] = text_of(host, path).replace("\0", " ").strip()
        if len(found) == len(pids):
            all_read.set()

    until = time.monotonic() + limit_s
    while len(found) < len(pids) and time.monotonic() < until:
        if left:  # whoever reads has not come back: somebody else goes on behind it
            threading.Thread(target=read, daemon=True).start()
        all_read.wait(PATIENCE_S)
    read_in_time = dict(found)
    return {
        pid: read_in_time.get(pid) or _name(host, pid, "" if pid in read_in_time else SILENT)
        for pid in pids
    }


def text_of(host: Host, path: str) -> str:
    """A file of the kernel's, "" for what has gone meanwhile."""
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _name(host: Host, pid: int, note: str) -> str:
    name = text_of(host, "/proc/{}/comm".format(pid)).strip()
    return "[{}]{}".format(name, note) if name else ""
