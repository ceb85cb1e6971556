"""The journal as journalctl reads it: to follow it, and for files that `file` does not know."""

import os
import re
from typing import Iterator, List, Optional, Pattern, Sequence

from ..host import Host, Refused
from .lines import EXPORT, Entry, Lines, Parser

READ_BYTES = 1 << 16
CURSOR_S = 5.0


def read_entries(host: Host, units: Sequence[str], bounds: Sequence[str]) -> Iterator[List[Entry]]:
    """Entries as journalctl writes them, in batches; it is ended when nobody takes the next one.

    Raises:
        Refused: journalctl failed.
    """
    parser = Parser(units)
    with host.open([*EXPORT, *bounds, *_units(units)]) as child:
        while True:
            piece = os.read(child.stdout.fileno(), READ_BYTES)  # type: ignore[union-attr] # a pipe
            if not piece:
                break
            batch = list(parser.feed(piece))
            if batch:
                yield batch
        if child.wait() != 0:
            said = child.stderr.read()  # type: ignore[union-attr] # a pipe
            words = said.decode("utf-8", "replace").strip().splitlines()
            raise Refused("journalctl: {}".format(words[-1] if words else child.returncode))


def read_lines(host: Host, units: Sequence[str], bounds: Sequence[str]) -> Iterator[Lines]:
    """The same as columns."""
    for entries in read_entries(host, units, bounds):
        yield columns(entries)


def read_tail(
    host: Host, unit: str, lines: int, until: Optional[str], grep: Optional[Pattern[bytes]]
) -> List[Entry]:
    """The last lines of one unit that match, oldest first; read backwards, so that no more is read than needed."""
    found: List[Entry] = []
    bounds = ["--reverse"] + ([] if until is None else ["--cursor=" + until])
    if grep is None:
        bounds += ["-n", str(lines)]
    for entries in read_entries(host, [unit], bounds):
        found += [entry for entry in entries if grep is None or grep.search(entry.message)]
        if len(found) >= lines:
            break
    return found[:lines][::-1]


def first_cursor(host: Host, units: Sequence[str], since: str) -> Optional[str]:
    """The cursor of the oldest entry of these units since a moment, in journalctl's words; None when there is none."""
    for entries in read_entries(host, units, ["--since=" + since]):
        return entries[0].cursor.decode()
    return None


def newest_cursor(host: Host, units: Sequence[str]) -> Optional[str]:
    """The cursor of the newest entry of these units; None when there is none.

    It must be one of theirs: `journalctl --after-cursor` passes over one entry that its filters let through, be it the
    cursor's or, where the cursor's is not let through, the first that comes after it (systemd 252).
    """
    done = host.run([*EXPORT, "-n", "1", *_units(units)], CURSOR_S)
    if done.exit_code != 0:
        raise Refused("journalctl: {}".format(done.last_words))
    match = re.search(r"^__CURSOR=(.*)$", done.stdout, re.MULTILINE)
    return None if match is None else match.group(1)


def columns(entries: Sequence[Entry]) -> Lines:
    """Entries, one at least, as columns."""
    return Lines(
        times=[entry.time_us for entry in entries],
        serials=[0] * len(entries),
        units=[entry.unit for entry in entries],
        messages=[entry.message for entry in entries],
        cursor=entries[-1].cursor,
    )


def _units(units: Sequence[str]) -> List[str]:
    return [word for unit in units for word in ("-u", unit)]
