"""The log of one host as it comes: its agent's stream turned into batches of lines, taken up again after a loss."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from infra.launch.fleet import rows_of
from infra.launch.logs.lines import LogLines
from infra.remote.failures import LostConnection, NoReport, Unreachable
from infra.spec.bounded import read_json

# A lost connection is tried again after this, and then twice as long, up to the longest pause.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
# Unpacked. A frame has about 1 MiB of text, or one message, which journald's readers here bound (`journal.lines`).
MAX_FRAME_BYTES = 1 << 27
MAX_NAMES, MAX_CURSOR = 65_536, 4_096
# The end of the year 9999, the last that is shown.
MAX_TIME_US = 253_402_300_799_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Lines of one host in the order of its journal.

    Args:
        is_caught_up: whether everything that had been written when it was asked has come by now.
    """

    lines: LogLines
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
        reader = _Reader(self.name)
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
    """Reads the stream of one connection; see `agent.journal.frames` for its frames."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.cursor = ""
        self._unpacker = zlib.decompressobj()
        self._names: list[str] = []
        self._is_caught_up = False

    def read(self, chunk: bytes) -> Batch:
        """The lines of a frame.

        Raises:
            NoReport: it is none, or longer than any.
        """
        try:
            return self._batch(self._unpacker.decompress(chunk, MAX_FRAME_BYTES))
        except (
            zlib.error,
            struct.error,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            what = f"what it sends is no log: {error}."
            raise NoReport(self._host, what, "Look at what answers there for the agent.") from error

    def _batch(self, frame: bytes) -> Batch:
        if self._unpacker.unconsumed_tail:
            message = f"a frame of more than {MAX_FRAME_BYTES} bytes"
            raise ValueError(message)
        if not frame:  # the end of the stream
            return Batch(lines=LogLines.none(), is_caught_up=self._is_caught_up)
        text, _, columns = frame.partition(b"\n")
        head: Any = read_json(text)
        self._names += map(str, head.get("processes", ()))
        if len(self._names) > MAX_NAMES:
            message = f"more than {MAX_NAMES} processes"
            raise ValueError(message)
        self.cursor = str(head.get("cursor") or self.cursor)[:MAX_CURSOR]
        self._is_caught_up = self._is_caught_up or bool(head.get("is_caught_up", False))
        lines = self._lines(head["num_lines"], head.get("process"), columns)
        return Batch(lines=lines, is_caught_up=self._is_caught_up)

    def _lines(self, num_lines: int, process: int | None, columns: bytes) -> LogLines:
        if not num_lines:
            return LogLines.none()
        if not 0 < num_lines <= len(columns):
            message = f"{num_lines} lines in {len(columns)} bytes"
            raise ValueError(message)
        times = list(struct.unpack_from(f"<{num_lines}Q", columns))
        if max(times) > MAX_TIME_US:
            message = f"a line of {max(times)} µs since 1970"
            raise ValueError(message)
        place = 8 * num_lines
        if process is not None:
            processes = [self._names[process]] * num_lines
        else:
            numbers = struct.unpack_from(f"<{num_lines}H", columns, place)
            processes = list(map(self._names.__getitem__, numbers))
            place += 2 * num_lines
        messages = columns[place:].decode("utf-8", "replace").split("\n")
        if len(messages) != num_lines:
            message = f"{len(messages)} messages of {num_lines} lines"
            raise ValueError(message)
        return LogLines(times, processes, messages)
