"""All of a host's journal files as one journal, at one moment."""

import bisect
import contextlib
import os
import re
from itertools import chain, compress
from typing import Callable, Dict, Iterator, List, Optional, Pattern, Sequence, Tuple

from ..host import Host
from .file import WINDOW, JournalFile, Start
from .format import Header, read_header
from .lines import Lines, Unreadable

FOLDERS = ("/var/log/journal", "/run/log/journal")
ENDINGS = (".journal", ".journal~")
# How often to look again until nothing is written while all headers are read.
ATTEMPTS = 100
NOTHING = Lines([], [], [], [], b"")
_CURSOR = re.compile(r"s=([0-9a-f]{32});i=([0-9a-f]+);.*\bt=([0-9a-f]+)")

Key = Callable[[Lines], List[int]]


def start_at(cursor: str, *, includes: bool) -> Start:
    """The place that a cursor names.

    Raises:
        Unreadable: it names none that is known here.
    """
    match = _CURSOR.match(cursor)
    if match is None:
        raise Unreadable("the cursor {}".format(cursor))
    sequence, serial, time_us = match.groups()
    return Start(bytes.fromhex(sequence), int(serial, 16), int(time_us, 16), includes)


@contextlib.contextmanager
def open_journal(host: Host, units: Sequence[str]) -> "Iterator[Journal]":
    """What these units have written up to now.

    Raises:
        Unreadable: here or from any call of the journal, when its files are not what is known here.
    """
    with contextlib.ExitStack() as stack:
        try:
            journal = Journal(_snapshot(_folder(host), stack), units)
        except (OSError, ValueError) as error:
            raise Unreadable(str(error)) from error
        stack.callback(journal.close)
        yield journal


class Journal:
    """The entries of some units in all files.

    Args:
        files: each open, with its header at one moment.
        units: whose entries; in `Lines` they are counted from 0.
    """

    def __init__(self, files: Sequence[Tuple[int, Header]], units: Sequence[str]) -> None:
        """Look into a file when something of it is wanted."""
        self._files = sorted(files, key=lambda row: row[1].tail_us)
        self._units = units
        self._opened: Dict[int, JournalFile] = {}

    def close(self) -> None:
        """Let go of all files."""
        for each in self._opened.values():
            each.close()

    def read(self, start: Optional[Start]) -> Iterator[Lines]:
        """Everything from a place on, oldest first: by journald's serial numbers, and sequences of them by time."""
        sequences: Dict[bytes, List[Iterator[Lines]]] = {}
        for handle, header in self._after(start):
            source = self._open(handle, header).read(start)
            sequences.setdefault(header.sequence, []).append(source)
        by_serial = [_merged(each, lambda lines: lines.serials) for each in sequences.values()]
        return _merged(by_serial, lambda lines: lines.times)

    def read_tail(
        self, unit: int, count: int, start: Optional[Start], grep: Optional[Pattern[bytes]]
    ) -> Lines:
        """The last entries of one unit that match, oldest first; newer files first, and no more than needed."""
        sequences: Dict[bytes, List[Tuple[int, Header]]] = {}
        for row in reversed(self._after(start)):
            sequences.setdefault(row[1].sequence, []).append(row)
        found = NOTHING
        for files in sequences.values():  # the one with the newest file stands first
            if len(found.times) == count and found.times[0] > files[0][1].tail_us:
                break
            tail = NOTHING
            for handle, header in sorted(files, key=lambda row: row[1].tail_serial, reverse=True):
                if len(tail.times) == count and tail.serials[0] > header.tail_serial:
                    break
                back = self._open(handle, header).read_back(start, unit, min(count, WINDOW))
                batches = [tail, *_enough((matching(lines, grep) for lines in back), count)][::-1]
                tail = last_of(_in_order(batches, [lines.serials for lines in batches]), count)
            found = last_of(by_time([tail, found]), count)
        return found

    def newest_cursor(self) -> Optional[str]:
        """The cursor of the newest entry, None when there is none."""
        newest: Dict[bytes, Lines] = {}
        for handle, header in reversed(self._files):
            known = newest.get(header.sequence, NOTHING).serials
            if known and known[-1] > header.tail_serial:
                continue
            found = next(self._open(handle, header).read_back(None, None, 1), NOTHING)
            if found.serials > known:
                newest[header.sequence] = found
        last = max(newest.values(), key=lambda lines: lines.times[-1], default=NOTHING)
        return last.cursor.decode() or None

    def _after(self, start: Optional[Start]) -> List[Tuple[int, Header]]:
        """The files that reach behind a place."""
        return [row for row in self._files if start is None or not start.is_behind(row[1])]

    def _open(self, handle: int, header: Header) -> JournalFile:
        if handle not in self._opened:
            self._opened[handle] = JournalFile(handle, header, self._units)
        return self._opened[handle]


def matching(lines: Lines, grep: Optional[Pattern[bytes]]) -> Lines:
    """The entries that match; the cursor stays that of the last one."""
    if grep is None:
        return lines
    keeps = list(map(bool, map(grep.search, lines.messages)))
    return lines._replace(
        times=list(compress(lines.times, keeps)),
        serials=list(compress(lines.serials, keeps)),
        units=list(compress(lines.units, keeps)),
        messages=list(compress(lines.messages, keeps)),
    )


def by_time(batches: Sequence[Lines]) -> Lines:
    """Several batches, one at least, as one in the order of time; the cursor is the last batch's."""
    return _in_order(batches, [lines.times for lines in batches])


def last_of(lines: Lines, count: int) -> Lines:
    """The last of them."""
    return cut(lines, max(len(lines.times) - count, 0), len(lines.times))


def cut(lines: Lines, begin: int, end: int) -> Lines:
    """Some of them."""
    return Lines(
        times=lines.times[begin:end],
        serials=lines.serials[begin:end],
        units=lines.units[begin:end],
        messages=lines.messages[begin:end],
        cursor=lines.cursor,
    )


def _enough(batches: Iterator[Lines], count: int) -> Iterator[Lines]:
    """Batches until there are so many entries."""
    for lines in batches:
        yield lines
        count -= len(lines.times)
        if count <= 0:
            break


def _merged(sources: List[Iterator[Lines]], key: Key) -> Iterator[Lines]:
    """Batches of several sources, each in order by itself, as batches in order; one of each is held."""
    held = [(lines, source) for source in sources for lines in [next(source, None)] if lines]
    while len(held) > 1:
        # what comes of the first to end stands behind its last entry, which all before it may pass
        first = min(range(len(held)), key=lambda number: key(held[number][0])[-1])
        limit = key(held[first][0])[-1]
        ready, rest = [], []
        for number, (lines, source) in enumerate(held):
            num_ready = bisect.bisect_right(key(lines), limit)
            if number == first:
                last, num_ready = lines, len(lines.times)
            ready.append(cut(lines, 0, num_ready))
            left = (
                cut(lines, num_ready, len(lines.times))
                if num_ready < len(lines.times)
                else next(source, None)
            )
            if left is not None:
                rest.append((left, source))
        yield _in_order(ready, [key(lines) for lines in ready])._replace(cursor=last.cursor)
        held = rest
    for lines, source in held:
        yield lines
        for following in source:
            yield following


def _in_order(batches: Sequence[Lines], keys: Sequence[List[int]]) -> Lines:
    """One batch of several, by their keys; entries of one key stay as they are."""
    if len(batches) == 1:
        return batches[0]
    all_keys = list(chain.from_iterable(keys))
    order = sorted(range(len(all_keys)), key=all_keys.__getitem__)
    times, serials, units, messages = (
        list(map(list(chain.from_iterable(column)).__getitem__, order))
        for column in zip(*(lines[:-1] for lines in batches))
    )
    return Lines(times, serials, units, messages, batches[-1].cursor)


def _folder(host: Host) -> str:
    """Where this machine's journal lies.

    Raises:
        Unreadable: nowhere, or in two places, as before systemd-journal-flush.service has run.
    """
    machine = host.read_bytes("/etc/machine-id").decode("ascii").strip()
    places = [host.path("{}/{}".format(folder, machine)) for folder in FOLDERS]
    found = [place for place in places if os.path.isdir(place) and _names(place)]
    parents = [os.path.dirname(place) for place in places]
    if len(found) != 1 or any(_names(each) for each in parents if os.path.isdir(each)):
        raise Unreadable("not one folder with a journal")
    return found[0]


def _names(folder: str) -> List[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(ENDINGS))


def _snapshot(folder: str, stack: contextlib.ExitStack) -> List[Tuple[int, Header]]:
    """All files, opened, with their headers of one moment; the stack closes them.

    Raises:
        Unreadable: journald writes so quickly that no two looks are alike.
    """
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as attempt, contextlib.suppress(FileNotFoundError):
            names = _names(folder)
            handles = [os.open(os.path.join(folder, name), os.O_RDONLY) for name in names]
            for handle in handles:
                attempt.callback(os.close, handle)
            headers = [read_header(handle) for handle in handles]
            if headers == [read_header(handle) for handle in handles] and names == _names(folder):
                stack.push(attempt.pop_all())
                return list(zip(handles, headers))
    raise Unreadable("no moment of quiet")
