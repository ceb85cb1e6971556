"""The logs of a recorded deployment, merged by time, from all hosts at once and whatever their size."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from infra.errors import InfraError, StackError
from infra.launch.logs.lines import LogLines, Shape, in_order
from infra.launch.logs.stream import Batch, HostLog, RecordedId
from infra.remote.failures import HostFailure
from infra.remote.fan_out import WAKE_S
from infra.render.host_paths import release_path

# Batches of one host that may wait to be merged; a batch is about 1 MiB of text at most.
WAITING_BATCHES = 4
# Following, lines are put in order among those that came within this time.
HOLD_S = 0.25
# What journalctl says of a moment that is none (systemd's journalctl.c).
NO_MOMENT = "Failed to parse timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which lines.

    Args:
        process: only this one, None for all.
        role: only the processes of this role, None for all.
        grep: only lines that match, None for all.
        lines: the last ones of each process, None for all since the moment.
        since: as journalctl takes it, None for whenever they were written.
        follow: go on for ever.
    """

    process: str | None
    role: str | None
    grep: str | None
    lines: int | None
    since: str | None
    follow: bool

    def request(self, stack: str) -> dict[str, object]:
        """The request to a host's agent."""
        return {
            "operation": "logs",
            "record": release_path(stack),
            "process": self.process,
            "role": self.role,
            "grep": self.grep,
            "lines": self.lines,
            "since": self.since,
            "follow": self.follow,
        }


@dataclass(slots=True)
class _Source:
    """What has come of one host and is not merged yet."""

    log: HostLog
    slots: threading.Semaphore
    num_held: int = 0
    lines: LogLines = field(default_factory=LogLines.none)
    is_over: bool = False
    is_caught_up: bool = False
    error: InfraError | None = None

    @property
    def holds_up(self) -> bool:
        """Whether lines of others may have to wait for its next one."""
        return not (self.is_over or self.is_caught_up)

    def let_go(self) -> None:
        """Read on once nothing of it waits: the host whose lines are the oldest is always let go."""
        if not self.lines:
            for _ in range(self.num_held):
                self.slots.release()
            self.num_held = 0


class LogMerge:
    """The lines of several hosts as one sequence.

    Every host is read by a thread of its own; one that is ahead of the others waits, so that memory is
    bounded by the number of hosts.
    """

    def __init__(self, logs: Sequence[HostLog]) -> None:
        """Begin to read."""
        self._sources = {
            log.name: _Source(log=log, slots=threading.Semaphore(WAITING_BATCHES)) for log in logs
        }
        self._arrived: queue.SimpleQueue[tuple[str, Batch | InfraError | BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._read, args=(source,), name=f"log {name}", daemon=True)
            for name, source in self._sources.items()
        ]
        for thread in self._threads:
            thread.start()

    def texts(self, shape: Shape) -> Iterator[list[str]]:
        """Lines as they are shown, oldest first; what has been written is merged exactly, what comes then nearly.

        A host that fails ends alone; see `failures`.
        """
        while not self._is_over():
            while not self._take(WAKE_S):
                pass
            if any(source.holds_up for source in self._sources.values()):
                ready = self._ready()
            else:
                until = time.monotonic() + HOLD_S
                while not self._is_over() and self._take(max(until - time.monotonic(), 0.0)):
                    pass
                ready = self._ready()
            if any(ready):
                yield in_order(ready, shape)

    @property
    def failures(self) -> tuple[HostFailure, ...]:
        """The hosts whose logs did not come to their end, and why."""
        return tuple(
            HostFailure(host=name, error=source.error)
            for name, source in self._sources.items()
            if source.error is not None
        )

    @property
    def processes(self) -> tuple[RecordedId, ...]:
        """What is recorded on the hosts that answered, once they are over."""
        return tuple(each for source in self._sources.values() for each in source.log.processes)

    def close(self) -> None:
        """Stop reading, here and on the hosts."""
        for source in self._sources.values():
            source.log.close()
            source.slots.release()  # a reader that waits for its turn sees that it is over

    def _read(self, source: _Source) -> None:
        """Pass a host's batches on; runs in its thread."""
        name = source.log.name
        try:
            for batch in source.log.batches():
                source.slots.acquire()
                self._arrived.put((name, batch))
        except BaseException as error:  # noqa: BLE001 - raised again where it is taken
            self._arrived.put((name, error))
        else:
            self._arrived.put((name, None))

    def _take(self, timeout_s: float) -> bool:
        """Wait for one more arrival; whether there was one."""
        try:
            name, arrived = self._arrived.get(timeout=timeout_s)
        except queue.Empty:
            return False
        source = self._sources[name]
        if isinstance(arrived, Batch):
            source.lines.add(arrived.lines)
            source.num_held += 1
            source.is_caught_up = source.is_caught_up or arrived.is_caught_up
            source.let_go()
            return True
        source.is_over = True
        if isinstance(arrived, InfraError):
            source.error = arrived
        elif arrived is not None:
            raise arrived
        return True

    def _is_over(self) -> bool:
        return all(source.is_over for source in self._sources.values())

    def _ready(self) -> list[LogLines]:
        """The lines that no line still to come can stand before; all of them when none is waited for."""
        sources = self._sources.values()
        awaited = [source for source in sources if source.holds_up]
        if any(not source.lines for source in awaited):
            return []
        # a clock that was set back puts later lines before this one: those come as soon as they are known
        first = min(awaited, key=lambda source: source.lines.times[-1], default=None)
        limit = first.lines.times[-1] if first is not None else None
        ready: list[LogLines] = []
        for source in sources:
            lines = source.lines
            if limit is None or source is first:
                ready.append(lines.take_first(len(lines)))
            else:
                ready.append(lines.take(limit))
            source.let_go()
        return ready


def judge_moment(query: LogQuery, failures: Sequence[HostFailure]) -> None:
    """Refuse a moment that no host's journalctl can read: only it knows all the ways to write one.

    Raises:
        StackError: that is why hosts failed.
    """
    if failures and all(NO_MOMENT in failure.error.what for failure in failures):
        what = f"{query.since!r} is no moment for journalctl."
        fix = "Write it as `2026-11-20 14:00` (the hosts' time), `2026-11-20 14:00 UTC`, `yesterday` or `10 min ago`."
        raise StackError("--since", what, fix)


def judge_query(query: LogQuery) -> None:
    """Refuse an expression that is none, before any host is asked.

    Raises:
        StackError: it is none.
    """
    if query.grep is None:
        return
    try:
        re.compile(query.grep)
    except re.error as error:
        what = f"{query.grep!r} is not an expression: {error}."
        raise StackError("--grep", what, "Quote special characters with a backslash.") from error
