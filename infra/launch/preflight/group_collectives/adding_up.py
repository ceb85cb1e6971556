"""What each host of a group runs: one process per device joins the group, and adds up with it.

Its text goes into `python3 -c TEXT TASK` where an engine would run, so it is one file, needs nothing but Python 3.9
and the engine's own torch, and writes no file. It ends by itself when its time is over, with every process that it
has begun, and then prints one line: `MARK` and what became of each rank, as JSON.

Keys of TASK: `backend` (of torch.distributed), `device` (`cuda`, `npu` or `cpu`), `plugin` (a module that brings the
device, or ""), `address` and `port` (where rank 0 listens), `num_ranks` (of the group), `first_rank` and `num_local`
(of this host), `num_bytes` (to add up), `join_s` (until all ranks have met), `work_s` (from then on), `patterns`
(which lines of the libraries are kept).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

MARK = "moe-infra-group-collective "
# How far a rank has come; each word holds until the next one is told.
PHASES = ("begun", "loaded", "reached", "met", "done")
NUM_WARM, NUM_TIMED = 3, 10
FLOAT_BYTES = 4
LOOK_S = 0.1
# Ranks that wait for others notice by themselves when it is too late; who then still says nothing is ended.
GRACE_S = 2.0
MAX_OF_PATTERN, MAX_LAST, MAX_LINE = 4, 20, 400

Task = dict[str, Any]
Rank = dict[str, Any]


def main(task: Task) -> None:
    """Run this host's ranks to their end, and print what became of them."""
    begun = time.monotonic()
    (told, tell), (said, say) = os.pipe(), os.pipe()
    ranks: dict[int, Rank] = {}  # by process id
    for place in range(task["num_local"]):
        pid = os.fork()
        if pid == 0:
            os.close(told)
            os.close(said)
            _become_rank(task, place, tell, say)
        ranks[pid] = {"rank": task["first_rank"] + place, "phase": PHASES[0], "ended": None}
    os.close(tell)
    os.close(say)
    # who ends this process ends its ranks, too: a container's first process is not ended by default
    signal.signal(signal.SIGTERM, lambda *_: _leave(ranks))
    lines = _watch(ranks, told, said, begun, task)
    _end(ranks)
    report = {"ranks": list(ranks.values()), "lines": lines.kept(), "last": lines.last}
    sys.stdout.write("\n" + MARK + json.dumps(report) + "\n")


class Lines:
    """What libraries print: a few lines of each wanted kind, and the end of it all."""

    def __init__(self, patterns: list[str]) -> None:
        """Keep nothing yet."""
        self.wanted: list[tuple[re.Pattern[str], list[str]]] = [
            (re.compile(p), []) for p in patterns
        ]
        self.last: list[str] = []
        self.open = b""

    def take(self, chunk: bytes) -> None:
        """Take what was printed; the last line may not be whole."""
        *whole, self.open = (self.open + chunk).split(b"\n")
        for raw in whole:
            line = raw.decode("utf-8", "replace").strip()[:MAX_LINE]
            self.last = [*self.last, line][-MAX_LAST:] if line else self.last
            for pattern, found in self.wanted:
                if len(found) < MAX_OF_PATTERN and pattern.search(line):
                    found.append(line)

    def kept(self) -> list[str]:
        """The lines of every wanted kind, each once."""
        return list(dict.fromkeys(line for _, found in self.wanted for line in found))


def _watch(ranks: dict[int, Rank], told: int, said: int, begun: float, task: Task) -> Lines:
    """Listen to the ranks until all have ended, or until it is clear that they will not."""
    lines, news = Lines(task["patterns"]), b""
    by_rank = {row["rank"]: row for row in ranks.values()}
    sources, is_over = [told, said], False
    while sources:
        ready, _, _ = select.select(sources, [], [], 0 if is_over else LOOK_S)
        if not ready and is_over:
            break
        for source in ready:
            chunk = os.read(source, 65536)
            if not chunk:
                sources.remove(source)
            elif source == said:
                lines.take(chunk)
            else:
                *whole, news = (news + chunk).split(b"\n")
                for line in map(json.loads, whole):
                    by_rank[line["rank"]].update(line)
        passed = time.monotonic() - begun - GRACE_S
        has_met = all(row["phase"] in PHASES[3:] for row in ranks.values())
        if not is_over and passed > task["join_s"] + (task["work_s"] if has_met else 0):
            _kill(ranks)  # then hear what is left to hear, and no more
            is_over = True
    return lines


def _end(ranks: dict[int, Rank]) -> None:
    """Wait for each process; how it ended stands beside what it told."""
    for pid, row in ranks.items():
        _, status = os.waitpid(pid, 0)
        row["ended"] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _kill(ranks: dict[int, Rank]) -> None:
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _leave(ranks: dict[int, Rank]) -> None:
    _kill(ranks)
    os._exit(128 + signal.SIGTERM)


def _become_rank(task: Task, place: int, tell: int, say: int) -> None:
    """Be one rank, and never return."""
    os.dup2(say, 1)
    os.dup2(say, 2)
    rank = task["first_rank"] + place

    def told(**news: object) -> None:
        os.write(tell, json.dumps({"rank": rank, **news}).encode("ascii") + b"\n")

    try:
        _add_up(task, place, rank, told)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told, and this process ends
        words = str(error).strip().splitlines()[:1] or [""]
        told(error=f"{type(error).__name__}: {words[0]}"[:MAX_LINE])
        os._exit(1)
    os._exit(0)  # no group is taken apart: others may still be at their last step


def _add_up(task: Task, place: int, rank: int, told: Callable[..., None]) -> None:
    """Meet the others, add up with them, take the time, and look at the sums."""
    begun = time.monotonic()
    # the process that watches must not load it: behind CUDA there is no fork
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415  here it is not installed
    from torch import distributed  # noqa: PLC0415

    if task["plugin"]:
        __import__(task["plugin"])
    kind, num_ranks = task["device"], task["num_ranks"]
    if kind != "cpu":
        getattr(torch, kind).set_device(place)
    device = kind if kind == "cpu" else f"{kind}:{place}"
    numbers = torch.empty(task["num_bytes"] // FLOAT_BYTES, dtype=torch.float32, device=device)
    told(phase="loaded", torch=str(torch.__version__))

    def wait_for_device() -> None:
        if kind != "cpu":
            getattr(torch, kind).synchronize()

    def left() -> timedelta:
        return timedelta(seconds=max(begun + task["join_s"] - time.monotonic(), 1.0))

    where = (task["address"], task["port"], num_ranks, rank == 0)
    store = distributed.TCPStore(*where, timeout=left(), wait_for_workers=False)
    store.set(f"rank-{rank}", "here")
    told(phase="reached")
    store.wait([f"rank-{other}" for other in range(num_ranks)], left())
    told(phase="met")
    limit = timedelta(seconds=task["work_s"])
    distributed.init_process_group(
        task["backend"], store=store, rank=rank, world_size=num_ranks, timeout=limit
    )
    seconds = []
    for _ in range(NUM_WARM + NUM_TIMED):
        numbers.fill_(1)
        distributed.barrier()
        wait_for_device()
        before = time.perf_counter()
        distributed.all_reduce(numbers)
        wait_for_device()
        seconds.append(time.perf_counter() - before)
    numbers.fill_(rank + 1)
    distributed.all_reduce(numbers)
    wrong = int((numbers != num_ranks * (num_ranks + 1) // 2).sum().item())
    told(phase="done", wrong=wrong, seconds=sum(seconds[NUM_WARM:]) / NUM_TIMED)
    store.set(f"done-{rank}", "so")
    if rank == 0:  # the store, which libraries may still ask, ends with it
        store.wait([f"done-{other}" for other in range(num_ranks)], limit)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
