"""One file of journald: the entries of some units by their index, read in bulk.

Every step over a window of entries is one call that loops in C, since a line of Python per line of a log is what takes
most of the time. That needs nothing to be alike but the kind of things: entries that are different (the message is
not their last field, or it is compressed) are read one by one, in between.
"""

import bisect
import contextlib
import struct
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .format import DATA, ENTRY, Header, Index, Objects
from .lines import NO_MESSAGE, UNIT_FIELDS, Lines, Unreadable, unit_of

WINDOW = 4096
MAX_BATCH_BYTES = 1 << 20
MESSAGE = b"MESSAGE="
# Places of fields that are no message: those which every line of a process repeats are looked at once.
MAX_OTHER_FIELDS = 1 << 16
# What a compressed field may measure, for the size of a batch.
PACKED = 32
COREDUMP = b"fc2e22bc6ee647b6b90729ab34a250b1"
# `journalctl -u` believes who speaks of a unit only where nobody can have forged it: field, then what else must be so.
SPEAKERS: Dict[bytes, Dict[bytes, bytes]] = {
    b"_SYSTEMD_UNIT": {},
    b"UNIT": {b"_PID": b"1"},
    b"OBJECT_SYSTEMD_UNIT": {b"_UID": b"0"},
    b"COREDUMP_UNIT": {b"_UID": b"0", b"MESSAGE_ID": COREDUMP},
}

# Kind with flags, size, serial number, time.
_ENTRY = struct.Struct("<QQQQ")
_STAMPS = struct.Struct("<16xQQQ16sQ")


class Start(NamedTuple):
    """A place in the journal: entries from there on, or only those behind it.

    Args:
        sequence: the one that `serial` counts in; files of another one are read by `time_us`.
        serial: journald's number of an entry.
        time_us: when that was written.
        includes: whether that entry is one of those.
    """

    sequence: bytes
    serial: int
    time_us: int
    includes: bool

    def is_behind(self, header: Header) -> bool:
        """Whether everything in a file lies before it."""
        if header.sequence == self.sequence:
            return header.tail_serial < self.serial
        return header.tail_us < self.time_us


class _Part(NamedTuple):
    """A list of entries and what of it is wanted; `is_sure`: all of them are the unit's."""

    unit: int
    is_sure: bool
    entries: Index
    begin: int
    end: int


class JournalFile:
    """The entries of some units in one file.

    Args:
        handle: the open file.
        header: as it was at the moment that is looked at.
        units: whose entries; in `Lines` they are counted from 0.
    """

    def __init__(self, handle: int, header: Header, units: Sequence[str]) -> None:
        """Find the units in the file's index.

        Raises:
            Unreadable: this or any other call, when the file is not as documented.
        """
        self.header = header
        self._objects = Objects(handle, header)
        self._map = self._objects.map
        self._named = struct.Struct("<QQ{}x8s".format(self._objects.payload_place - 16))
        self._item = struct.Struct("<" + self._objects.item_code)
        self._units = {unit.encode(): number for number, unit in enumerate(units)}
        self._others: Set[int] = set()
        with _damage():
            self._lists = [
                (self._units[value], not SPEAKERS[name], index)
                for name in UNIT_FIELDS
                for value, index in self._objects.field_values(name)
                if value in self._units
            ]

    def close(self) -> None:
        """Let go of the file's pages."""
        self._map.close()

    def read(self, start: Optional[Start]) -> Iterator[Lines]:
        """The entries from a place on, oldest first."""
        with _damage():
            parts = self._parts(start, None)
            window = max(WINDOW // max(len(parts), 1), 64)
            while parts:
                limits = [
                    p.entries.place(p.begin + window) for p in parts if p.begin + window < p.end
                ]
                limit = min(limits) if limits else None
                wanted: List[Tuple[_Part, List[int]]] = []
                for number, part in enumerate(parts):
                    places = part.entries.places(part.begin, min(part.begin + window, part.end))
                    cut = len(places) if limit is None else bisect.bisect_left(places, limit)
                    wanted.append((part, places[:cut]))
                    parts[number] = part._replace(begin=part.begin + cut)
                parts = [part for part in parts if part.begin < part.end]
                if not any(places for _, places in wanted):
                    raise Unreadable("the order of entries")
                for lines in self._lines(wanted):
                    yield lines

    def read_back(self, start: Optional[Start], unit: Optional[int], size: int) -> Iterator[Lines]:
        """The entries from a place on, the newest batch first; in a batch the oldest stands first.

        Args:
            start: nothing before it.
            unit: only this one's, None for all.
            size: about how many entries make a batch.
        """
        with _damage():
            parts = self._parts(start, unit)
            while parts:
                limit = max(part.entries.place(max(part.end - size, part.begin)) for part in parts)
                wanted: List[Tuple[_Part, List[int]]] = []
                for number, part in enumerate(parts):
                    first = max(part.end - size, part.begin)
                    places = part.entries.places(first, part.end)
                    cut = bisect.bisect_left(places, limit)
                    wanted.append((part, places[cut:]))
                    parts[number] = part._replace(end=first + cut)
                parts = [part for part in parts if part.begin < part.end]
                for lines in reversed(list(self._lines(wanted))):
                    yield lines

    def _parts(self, start: Optional[Start], unit: Optional[int]) -> List[_Part]:
        parts = [
            _Part(number, is_sure, index, self._num_before(index, start), index.length)
            for number, is_sure, index in self._lists
            if unit is None or unit == number
        ]
        return [part for part in parts if part.begin < part.end]

    def _num_before(self, index: Index, start: Optional[Start]) -> int:
        """How many entries of a list lie before a place."""
        if start is None:
            return 0
        is_own = start.sequence == self.header.sequence
        column, value = (0, start.serial) if is_own else (1, start.time_us)
        low, high = 0, index.length
        while low < high:
            middle = (low + high) // 2
            found = _STAMPS.unpack_from(self._map, index.place(middle))[column]
            if found < value or (found == value and not start.includes):
                low = middle + 1
            else:
                high = middle
        return low

    def _lines(self, wanted: List[Tuple[_Part, List[int]]]) -> Iterator[Lines]:
        """The entries at these places in their order, in batches of bounded size."""
        wanted = [(part, places) for part, places in wanted if places]
        if len(wanted) == 1 and wanted[0][0].is_sure:
            [(part, places)] = wanted
            units = [part.unit] * len(places)
        else:
            places, units = self._in_order(wanted)
        while places:
            lines = self._read_batch(places, units)
            yield lines
            count = len(lines.times)
            places, units = places[count:], units[count:]

    def _in_order(self, wanted: List[Tuple[_Part, List[int]]]) -> Tuple[List[int], List[int]]:
        """The places of several lists in their order, each once, with its unit."""
        owners: Dict[int, int] = {}
        for part, places in wanted:
            if part.is_sure:
                owners.update(zip(places, repeat(part.unit)))
            else:
                owners.update((place, part.unit) for place in places if self._is_of(part, place))
        order = sorted(owners)
        return order, list(map(owners.__getitem__, order))

    def _is_of(self, part: _Part, place: int) -> bool:
        """Whether an entry that names a unit is one of that unit."""
        payloads = map(self._objects.payload, self._objects.items(place))
        fields = {name: value for name, _, value in (text.partition(b"=") for text in payloads)}
        said = any(
            fields.get(name) in self._units
            and all(fields.get(key) == value for key, value in conditions.items())
            for name, conditions in SPEAKERS.items()
        )
        return said and unit_of(fields, self._units) == part.unit

    def _read_batch(self, places: List[int], units: List[int]) -> Lines:
        """The first of these entries: as many as a batch may hold, one at least."""
        kinds, sizes, serials, times = zip(*map(_ENTRY.unpack_from, repeat(self._map), places))
        if set(kinds) != {ENTRY}:
            raise Unreadable("an entry")
        # fields lie in the order in which they came: a text that is new is the last one
        last_items = map(sub, map(add, places, sizes), repeat(self._objects.item_size))
        fields = list(
            chain.from_iterable(map(self._item.unpack_from, repeat(self._map), last_items))
        )
        kinds, sizes, names = zip(*map(self._named.unpack_from, repeat(self._map), fields))
        if set(kinds) != {DATA} or set(names) != {MESSAGE}:
            for number, (kind, name) in enumerate(zip(kinds, names)):
                if kind != DATA or name != MESSAGE:
                    fields[number] = self._message_field(places[number])
            kinds, sizes, _ = zip(*map(self._named.unpack_from, repeat(self._map), fields))
        if set(kinds) == {DATA}:
            count = _num_within(sizes)
            begins = map(add, fields[:count], repeat(self._objects.payload_place + len(MESSAGE)))
            ends = list(map(add, fields, sizes))
            if max(ends) > len(self._map):
                raise Unreadable("a message")
            texts = map(slice, begins, ends)
            messages = list(map(self._map.__getitem__, texts))
        else:
            count = _num_within(
                [size if kind == DATA else size * PACKED for kind, size in zip(kinds, sizes)]
            )
            messages = [self._message(field) for field in fields[:count]]
        return Lines(
            times=list(times[:count]),
            serials=list(serials[:count]),
            units=units[:count],
            messages=messages,
            cursor=self._cursor(places[count - 1]),
        )

    def _message_field(self, place: int) -> int:
        """Where the message of an entry lies; 0 for an entry without one."""
        for item in reversed(self._objects.items(place)):
            if item in self._others:
                continue
            if self._objects.payload(item).startswith(MESSAGE):
                return item
            if len(self._others) >= MAX_OTHER_FIELDS:
                self._others.clear()
            self._others.add(item)
        return 0

    def _message(self, field: int) -> bytes:
        return self._objects.payload(field)[len(MESSAGE) :] if field else NO_MESSAGE

    def _cursor(self, place: int) -> bytes:
        """As sd_journal_get_cursor(3) writes it."""
        serial, time_us, monotonic_us, boot, check = _STAMPS.unpack_from(self._map, place)
        return "s={};i={:x};b={};m={:x};t={:x};x={:x}".format(
            self.header.sequence.hex(), serial, boot.hex(), monotonic_us, time_us, check
        ).encode()


def _num_within(sizes: Sequence[int]) -> int:
    """How many of these make a batch, one at least."""
    if sum(sizes) <= MAX_BATCH_BYTES:
        return len(sizes)
    return max(bisect.bisect_right(list(accumulate(sizes)), MAX_BATCH_BYTES), 1)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """What leads out of the file is damage."""
    try:
        yield
    except (struct.error, IndexError, OverflowError) as error:
        raise Unreadable("a place outside of the file") from error
