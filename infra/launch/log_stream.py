"""The log of one host as it comes: its agent's stream turned into batches of lines, taken up again after a loss."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from infra.launch.fleet import rows_of
from infra.remote.failures import LostConnection, Unreachable

# A lost connection is tried again after this, and then twice as long, up to the longest pause.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
_MICROSECONDS = 1e6


class LogLine(NamedTuple):
    """One line; `time_us` counts microseconds since 1970."""

    time_us: int
    process: str
    message: str

    @property
    def time_s(self) -> float:
        """Seconds since 1970."""
        return self.time_us / _MICROSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Lines of one host in the order of its journal.

    Args:
        is_caught_up: whether everything that had been written when it was asked has come by now.
    """

    lines: list[LogLine]
    is_caught_up: bool


@dataclass(frozen=True, slots=True)
class RecordedId:
    """A process that a host has a record of."""

    id: str
    role: str


class Chunks(Protocol):
    """A streamed answer, as `remote.agent_stream.AgentStream` gives it."""

    @property
    def report(self) -> Mapping[str, object]:
        """The report behind the chunks, once they are over."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The chunks; b"" when nothing came for a while."""
        ...

    def close(self) -> None:
        """Stop, from any thread."""
        ...


OpenStream = Callable[[Mapping[str, object]], Chunks]


@dataclass(slots=True)
class HostLog:
    """One host's log.

    Args:
        name: the host.
        open_stream: sends a request to its agent.
        request: what is asked for, without the cursor.
        say: where a line about a lost connection goes.
        processes: what is recorded there; known at the end of a stream that does not follow.
    """

    name: str
    open_stream: OpenStream
    request: Mapping[str, object]
    say: Callable[[str], None]
    processes: tuple[RecordedId, ...] = ()
    _stream: Chunks | None = None
    _cursor: str = ""
    _closed: threading.Event = field(default_factory=threading.Event)
    _pause_s: float = field(default=FIRST_PAUSE_S)

    def batches(self) -> Iterator[Batch]:
        """The lines until the end; with `follow` until `close`, over any number of lost connections.

        Raises:
            HostsFailed: the host cannot be asked; while following, only before its first answer.
        """
        follows = bool(self.request.get("follow"))
        has_answered = False
        while not self._closed.is_set():
            try:
                for batch in self._read_once():
                    has_answered = True
                    yield batch
            except (LostConnection, Unreachable) as error:
                if self._closed.is_set():
                    return
                if not (follows and has_answered):
                    raise
                self.say(f"{self.name}: {error.what} Trying again; no line is lost.")
                self._wait()
                continue
            return

    def close(self) -> None:
        """Stop: the stream ends, here and on the host."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _read_once(self) -> Iterator[Batch]:
        """The batches of one connection, after those that have come already."""
        after = {"after": self._cursor} if self._cursor else {}
        stream = self._stream = self.open_stream({**self.request, **after})
        if self._closed.is_set():
            stream.close()
            return
        reader = _Reader()
        for chunk in stream.chunks():
            if not chunk:
                continue
            batch = reader.read(chunk)
            self._cursor = reader.cursor or self._cursor
            self._pause_s = FIRST_PAUSE_S
            yield batch
        self.processes = tuple(
            RecordedId(str(row["id"]), str(row["role"]))
            for row in rows_of(stream.report, "processes")
        )

    def _wait(self) -> None:
        """Pause before the next attempt; `close` cuts it short."""
        self._closed.wait(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)


class _Reader:
    """Reads the stream of one connection; see `agent.logs` for its lines."""

    def __init__(self) -> None:
        self.cursor = ""
        self._unpacker = zlib.decompressobj()
        self._rest = b""
        self._names: list[str] = []
        self._is_caught_up = False

    def read(self, chunk: bytes) -> Batch:
        """The lines that a chunk completes."""
        *whole, self._rest = (self._rest + self._unpacker.decompress(chunk)).split(b"\n")
        lines: list[LogLine] = []
        names, make = self._names, LogLine
        for line in whole:
            if line[:1] == b"L":
                number, stamp, text = line[1:].split(b" ", 2)
                lines.append(make(int(stamp), names[int(number)], text.decode("utf-8", "replace")))
            else:
                self._note(line[:1], line[1:].decode())
        return Batch(lines=lines, is_caught_up=self._is_caught_up)

    def _note(self, kind: bytes, text: str) -> None:
        if kind == b"P":
            self._names.append(text)
        elif kind == b"C":
            self.cursor = text
        elif kind == b"B":
            self._is_caught_up = True
