"""The streamed operation `logs`: what recorded processes have written, merged by time, and what they go on writing.

The stream is one zlib stream of lines, each with its kind in front:

    P<process id>            one per chosen process; they are counted from 0
    L<process> <time_us> <text>
    C<cursor>                journald's cursor after everything before this line
    B                        what had been written when it was asked is over

With `follow` it never ends by itself.
"""

import heapq
import os
import re
import zlib
from collections import deque
from typing import Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Pattern

from .host import Host, Refused
from .journal import EXPORT, Entry, Parser
from .record import chosen_processes, read_record, recorded_processes

READ_BYTES = 1 << 16
FRAME_BYTES = 1 << 16
CURSOR_S = 5.0
LEVEL = 1

Write = Callable[[bytes], None]


class Query(NamedTuple):
    """Which lines: the last `lines` of each unit, those since a moment, or those after a cursor."""

    units: List[str]
    lines: Optional[int]
    since: Optional[str]
    after: Optional[str]
    grep: Optional[Pattern[bytes]]


def stream(request: Dict[str, object], host: Host, write: Write) -> Dict[str, object]:
    """Send the lines of the recorded processes that are asked for; the report says which there are.

    Raises:
        Refused: the record is damaged, the expression is none, or journald cannot be read.
    """
    rows = recorded_processes(read_record(host, str(request.get("record"))))
    chosen = chosen_processes(rows, request.get("process"), request.get("role"))
    query = _query(request, [str(row["unit"]) for row in chosen])
    out = _Compressed(write)
    for row in chosen:
        out.add("P{}\n".format(row["id"]).encode())
    if chosen:
        _send_entries(host, query, out, follows=bool(request.get("follow")))
    out.end()
    return {"schema_version": 1, "processes": [{"id": r["id"], "role": r["role"]} for r in rows]}


def _query(request: Dict[str, object], units: List[str]) -> Query:
    grep, lines, since, after = (request.get(key) for key in ("grep", "lines", "since", "after"))
    try:
        pattern = None if grep is None else re.compile(str(grep).encode())
    except re.error as error:
        raise Refused("{!r} is not a pattern: {}".format(grep, error)) from error
    return Query(
        units=units,
        lines=None if lines is None else int(str(lines)),
        since=None if since is None else str(since),
        after=None if after is None else str(after),
        grep=pattern,
    )


def _send_entries(host: Host, query: Query, out: "_Compressed", *, follows: bool) -> None:
    """Everything that there is, then, when it follows, what comes; journald's cursor joins the two."""
    numbers = {unit: index for index, unit in enumerate(query.units)}
    cursor = query.after or _newest_cursor(host, query.units)
    if query.after is None and query.lines is not None:
        # without a cursor nothing has been written yet, and what comes meanwhile is followed from the start
        for entry in _last_entries(host, query, query.lines, cursor) if cursor else ():
            out.line(numbers[entry.unit], entry)
    else:
        for entries in read_entries(host, query.units, _bounds(query), query.grep):
            for entry in entries:
                out.line(numbers.get(entry.unit, 0), entry)
                cursor = entry.cursor.decode() or cursor
    out.caught_up(cursor or "")
    if not follows:
        return
    bounds = ["--follow", "--no-tail"] + (["--after-cursor=" + cursor] if cursor else [])
    for entries in read_entries(host, query.units, bounds, query.grep):
        for entry in entries:
            out.line(numbers.get(entry.unit, 0), entry)
        out.flush()
    raise Refused("journalctl stopped following")


def _last_entries(host: Host, query: Query, lines: int, until: Optional[str]) -> Iterable[Entry]:
    """The last lines of each unit, merged by time; none after `until`, where following goes on."""
    if query.since is None:
        tails = [read_tail(host, unit, query, lines, until) for unit in query.units]
        return heapq.merge(*tails, key=lambda entry: entry.time_us)
    kept: Dict[str, Deque[Entry]] = {unit: deque(maxlen=lines) for unit in query.units}
    for entries in read_entries(host, query.units, _bounds(query), query.grep):
        for entry in entries:
            kept.get(entry.unit, kept[query.units[0]]).append(entry)
    return heapq.merge(*kept.values(), key=lambda entry: entry.time_us)


def _bounds(query: Query) -> List[str]:
    if query.after is not None:
        return ["--after-cursor=" + query.after]
    return [] if query.since is None else ["--since=" + query.since]


def _newest_cursor(host: Host, units: List[str]) -> Optional[str]:
    """The cursor of the newest entry of these units; None when there is none.

    It must be one of theirs: `journalctl --after-cursor` passes over one entry that its filters let through, be it the
    cursor's or, where the cursor's is not let through, the first that comes after it (systemd 252).
    """
    argv = [*EXPORT, "-n", "1"]
    for unit in units:
        argv += ["-u", unit]
    done = host.run(argv, CURSOR_S)
    if done.exit_code != 0:
        raise Refused("journalctl: {}".format(done.last_words))
    match = re.search(r"^__CURSOR=(.*)$", done.stdout, re.MULTILINE)
    return None if match is None else match.group(1)


def read_tail(host: Host, unit: str, query: Query, lines: int, until: Optional[str]) -> List[Entry]:
    """The last lines of one unit that match, oldest first; read backwards, so that no more is read than needed."""
    found: List[Entry] = []
    bounds = ["--reverse"] + ([] if until is None else ["--cursor=" + until])
    if query.grep is None:
        bounds += ["-n", str(lines)]
    for entries in read_entries(host, [unit], bounds, query.grep):
        found.extend(entry._replace(unit=unit) for entry in entries)
        if len(found) >= lines:
            break
    return found[:lines][::-1]


def read_entries(
    host: Host, units: List[str], bounds: List[str], grep: Optional[Pattern[bytes]]
) -> Iterator[List[Entry]]:
    """Entries as journalctl writes them, in batches; it is ended when nobody takes the next one.

    Raises:
        Refused: journalctl failed.
    """
    argv = [*EXPORT, *bounds]
    for unit in units:
        argv += ["-u", unit]
    parser = Parser(units)
    with host.open(argv) as child:
        while True:
            piece = os.read(child.stdout.fileno(), READ_BYTES)  # type: ignore[union-attr] # a pipe
            if not piece:
                break
            entries: Iterable[Entry] = parser.feed(piece)
            if grep is not None:
                entries = [entry for entry in entries if grep.search(entry.message)]
            batch = list(entries)
            if batch:
                yield batch
        if child.wait() != 0:
            said = child.stderr.read()  # type: ignore[union-attr] # a pipe
            words = said.decode("utf-8", "replace").strip().splitlines()
            raise Refused("journalctl: {}".format(words[-1] if words else child.returncode))


class _Compressed:
    """Gathers lines and sends them as pieces of one zlib stream; cursors travel beside them."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._packer = zlib.compressobj(LEVEL)
        self._parts: List[bytes] = []
        self._size = 0
        self._cursor = b""

    def add(self, part: bytes) -> None:
        """Keep a piece until there is enough to send."""
        self._parts.append(part)
        self._size += len(part)
        if self._size >= FRAME_BYTES:
            self.flush()

    def line(self, number: int, entry: Entry) -> None:
        """One entry; each line of a message that has several is a line."""
        for text in entry.message.split(b"\n") if b"\n" in entry.message else (entry.message,):
            self.add(b"L%d %d %b\n" % (number, entry.time_us, text))
        self._cursor = entry.cursor

    def caught_up(self, cursor: str) -> None:
        """What had been written when it was asked has been sent; the rest comes after this cursor."""
        self._cursor = cursor.encode()
        self.add(b"B\n")
        self.flush()

    def flush(self) -> None:
        """Send what is kept, so that the other side can read all of it."""
        if self._cursor:
            self._parts.append(b"C" + self._cursor + b"\n")
            self._cursor = b""
        if self._parts:
            packed = self._packer.compress(b"".join(self._parts))
            self._write(packed + self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._parts, self._size = [], 0

    def end(self) -> None:
        """Send what is kept and the end of the stream."""
        self.flush()
        self._write(self._packer.flush(zlib.Z_FINISH))
