"""What units have written, read the quickest way there is: from journald's files, else by journalctl.

Where the files turn out to be unknown in the middle of it, journalctl goes on behind the last entry that was read.
"""

import sys
from collections import deque
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence

from ..host import Host, Refused
from . import journalctl
from .file import Start
from .lines import Entry, Lines, Unreadable
from .store import NOTHING, matching, open_journal, start_at

NOWHERE = Start(sequence=b"", serial=0, time_us=sys.maxsize, includes=False)


class Bounds(NamedTuple):
    """Which part of the journal: after a cursor, else since a moment as journalctl takes it, else all of it."""

    since: Optional[str]
    after: Optional[str]

    def words(self) -> List[str]:
        """For journalctl."""
        if self.after is not None:
            return ["--after-cursor=" + self.after]
        return [] if self.since is None else ["--since=" + self.since]


ALL = Bounds(since=None, after=None)


class Tails(NamedTuple):
    """The last entries of each unit, oldest first, and the cursor behind which following them begins."""

    units: List[Lines]
    cursor: Optional[str]


def read_forward(
    host: Host, units: Sequence[str], bounds: Bounds, grep: Optional[Pattern[bytes]]
) -> Iterator[Lines]:
    """Everything that matches, oldest first; the last batch's cursor is where following begins.

    Batches may be empty: nothing in them matches, or nothing has been written at all.

    Raises:
        Refused: journalctl failed.
    """
    read_until = bounds.after
    try:
        with open_journal(host, units) as journal:
            newest = journal.newest_cursor()
            for lines in journal.read(_start(host, units, bounds)):
                read_until = lines.cursor.decode()
                yield matching(lines, grep)
            if read_until is None:
                yield NOTHING._replace(cursor=(newest or "").encode())
    except Unreadable:
        rest = bounds._replace(after=read_until)
        for lines in _read_with_journalctl(host, units, rest):
            yield matching(lines, grep)


def read_tails(
    host: Host, units: Sequence[str], count: int, bounds: Bounds, grep: Optional[Pattern[bytes]]
) -> Tails:
    """The last entries of each unit that match.

    Raises:
        Refused: journalctl failed.
    """
    try:
        with open_journal(host, units) as journal:
            start = _start(host, units, bounds)
            tails = [journal.read_tail(each, count, start, grep) for each in range(len(units))]
            return Tails(tails, journal.newest_cursor())
    except Unreadable:
        return _tails_of_journalctl(host, units, count, bounds, grep)


def follow(
    host: Host, units: Sequence[str], after: Optional[str], grep: Optional[Pattern[bytes]]
) -> Iterator[Lines]:
    """What is written from now on, as it comes, or behind a cursor; it never ends by itself.

    Raises:
        Refused: journalctl failed.
    """
    words = ["--follow", "--no-tail"] + (["--after-cursor=" + after] if after else [])
    for lines in journalctl.read_lines(host, units, words):
        yield matching(lines, grep)
    raise Refused("journalctl stopped following")


def _start(host: Host, units: Sequence[str], bounds: Bounds) -> Optional[Start]:
    """Where to begin; None for the beginning.

    Only journalctl knows all the ways in which a moment can be written: it is asked for the first entry.
    """
    if bounds.after is not None:
        return start_at(bounds.after, includes=False)
    if bounds.since is None:
        return None
    first = journalctl.first_cursor(host, units, bounds.since)
    return NOWHERE if first is None else start_at(first, includes=True)


def _read_with_journalctl(host: Host, units: Sequence[str], bounds: Bounds) -> Iterator[Lines]:
    newest = bounds.after or journalctl.newest_cursor(host, units)
    has_read = False
    for lines in journalctl.read_lines(host, units, bounds.words()):
        has_read = True
        yield lines
    if not has_read:
        yield NOTHING._replace(cursor=(newest or "").encode())


def _tails_of_journalctl(
    host: Host, units: Sequence[str], count: int, bounds: Bounds, grep: Optional[Pattern[bytes]]
) -> Tails:
    """The same by journalctl: backwards from the newest entry, or forwards from the moment that is asked for."""
    newest = journalctl.newest_cursor(host, units)
    if newest is None:
        # what comes meanwhile is followed from the start
        return Tails([], None)
    if bounds == ALL:
        tails = [journalctl.read_tail(host, unit, count, newest, grep) for unit in units]
        return Tails(
            [journalctl.columns(t)._replace(units=[n] * len(t)) for n, t in enumerate(tails) if t],
            newest,
        )
    kept: Dict[int, Deque[Entry]] = {number: deque(maxlen=count) for number in range(len(units))}
    for entries in journalctl.read_entries(host, units, bounds.words()):
        for entry in entries:
            if grep is None or grep.search(entry.message):
                kept[entry.unit].append(entry)
        newest = entries[-1].cursor.decode()
    return Tails([journalctl.columns(list(rows)) for rows in kept.values() if rows], newest)
