"""One measured command: wall clock, processor time and memory of everything that it starts."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Looking at 200 processes takes 20 ms of the processors that are being measured.
SAMPLE_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a command cost.

    Args:
        wall_s: from its start to its end.
        cpu_s: of it and all that it waited for.
        own_mib: peak of the memory that is its own (anonymous), its children's included, sampled.
        resident_mib: peak of what one process held, shared files included.
    """

    wall_s: float
    cpu_s: float
    own_mib: float
    resident_mib: float


def measure(
    command: Sequence[str], *, folder: Path, codes: tuple[int, ...] = (0,), limit_s: float = 1200.0
) -> MeasuredRun:
    """Run a command and say what it cost; its output goes into a file of the folder.

    Raises:
        AssertionError: it left with another code than those expected; its output is the message.
    """
    log = folder / "last-output"
    with log.open("wb") as stream:
        begun = time.perf_counter()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        sampler = _Sampler(child.pid)
        sampler.start()
        killer = threading.Timer(limit_s, child.kill)
        killer.start()
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - begun
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        sampler.stop()
    if child.returncode not in codes:
        raise AssertionError(f"{command}\n{log.read_text(errors='replace')[-3000:]}")
    return MeasuredRun(
        wall_s=wall_s,
        cpu_s=used.ru_utime + used.ru_stime,
        own_mib=sampler.peak_kib / 1024,
        resident_mib=used.ru_maxrss / 1024,
    )


class _Sampler(threading.Thread):
    """Looks now and then at the anonymous memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self.peak_kib = 0

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.peak_kib = max(self.peak_kib, sum(map(_anonymous_kib, _tree(self._pid))))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _anonymous_kib(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    except OSError:
        return 0
    return 0
