"""What journald keeps of units: read in its export format, entry by entry, whatever the size."""

import re
import struct
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..host import Refused

# journald's own limit of one field is 768 MiB; a log line of such a size is none.
MAX_FIELD_BYTES = 1 << 26
# UNIT: lines of systemd itself about a unit; COREDUMP_UNIT and OBJECT_SYSTEMD_UNIT: of others about it.
UNIT_FIELDS = (b"_SYSTEMD_UNIT", b"UNIT", b"OBJECT_SYSTEMD_UNIT", b"COREDUMP_UNIT")
EXPORT = [
    "journalctl",
    "--no-pager",
    "-q",
    "-o",
    "export",
    "--output-fields=MESSAGE," + ",".join(name.decode() for name in UNIT_FIELDS),
]
NO_MESSAGE = b"(no message)"
# One entry without binary fields: `NAME=text` lines, then an empty one (systemd.journal-export).
_TEXT_ENTRY = re.compile(rb"((?:[A-Za-z0-9_]+=[^\n]*\n)+)\n")
_SIZE = struct.Struct("<Q")
# Microseconds since 1970, to the end of the year 4000.
_TIME = re.compile(rb"[0-9]{1,16}\Z")


class Unreadable(Exception):
    """The journal's files are not what is known here; journalctl may know better."""


class Entry(NamedTuple):
    """One line of the journal; `time_us` since 1970, `unit` by its place among those that were asked for."""

    cursor: bytes
    time_us: int
    unit: int
    message: bytes


class Lines(NamedTuple):
    """Entries of some units in their order, as columns of one length.

    Args:
        times: microseconds since 1970.
        serials: journald's serial numbers; 0 where journalctl, which does not tell them, read them.
        units: each entry's unit, by its place among those that were asked for.
        messages: what was written; it may have several lines.
        cursor: journald's own name for the place of the last entry.
    """

    times: List[int]
    serials: List[int]
    units: List[int]
    messages: List[bytes]
    cursor: bytes


def unit_of(fields: Dict[bytes, bytes], units: Dict[bytes, int]) -> Optional[int]:
    """Which of these units an entry is of: the one in the first of its unit fields that names one."""
    for name in UNIT_FIELDS:
        known = units.get(fields.get(name, b""))
        if known is not None:
            return known
    return None


def stamp(time_us: int) -> str:
    """ISO time in UTC with microseconds: in the order of the text, in the order of time."""
    seconds, rest = divmod(time_us, 1000000)
    return "{}.{:06d}Z".format(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)), rest)


class Parser:
    """Turns pieces of journalctl's export format into entries.

    Args:
        units: what was asked for; an entry is of the first of its unit fields that is among them.
    """

    def __init__(self, units: Sequence[str]) -> None:
        """Begin with nothing."""
        self._units = {unit.encode(): number for number, unit in enumerate(units)}
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Entry]:
        """The entries that are whole by now."""
        text = self._rest + piece
        place = 0
        while True:
            match = _TEXT_ENTRY.match(text, place)
            if match is not None:
                lines = match.group(1).split(b"\n")
                fields = dict(line.split(b"=", 1) for line in lines if line)
                place = match.end()
            else:
                fields, end = _binary_entry(text, place)
                if end is None:
                    break
                place = end
            if fields:
                yield self._entry(fields)
        self._rest = text[place:]
        if len(self._rest) > 2 * MAX_FIELD_BYTES:
            raise Refused("what journalctl printed is not journald's export format")

    def _entry(self, fields: Dict[bytes, bytes]) -> Entry:
        time_us = fields.get(b"__REALTIME_TIMESTAMP", b"0")
        return Entry(
            cursor=fields.get(b"__CURSOR", b""),
            time_us=int(time_us) if _TIME.match(time_us) else 0,
            unit=unit_of(fields, self._units) or 0,
            message=fields.get(b"MESSAGE", NO_MESSAGE),
        )


def _binary_entry(text: bytes, place: int) -> Tuple[Dict[bytes, bytes], Optional[int]]:
    """The fields of an entry, some of which hold any bytes, and its end; None while it is not whole.

    Raises:
        Refused: it is no entry.
    """
    fields: Dict[bytes, bytes] = {}
    while True:
        end = text.find(b"\n", place)
        if end < 0:
            return fields, None
        name, equals, value = text[place:end].partition(b"=")
        place = end + 1
        if not name and not equals:
            return fields, place
        if not equals:
            if len(text) < place + _SIZE.size:
                return fields, None
            size = _SIZE.unpack_from(text, place)[0]
            if size > MAX_FIELD_BYTES:
                raise Refused("what journalctl printed is not journald's export format")
            start = place + _SIZE.size
            if len(text) <= start + size:
                return fields, None
            value, place = text[start : start + size], start + size + 1
        fields[name] = value
