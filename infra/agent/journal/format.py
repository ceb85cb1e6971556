"""What lies in a file of journald: its header, its objects, and the index that leads from a unit to its entries.

The format is documented and stable: systemd.io/JOURNAL_FILE_FORMAT (checked 2026-11-21; files of systemd 189 to 257).
Whatever is not as described there is not guessed at: `Unreadable`, and journalctl reads on.
"""

import mmap
import os
import struct
from operator import lt
from typing import Dict, Iterator, List, NamedTuple, Tuple

from .lines import Unreadable

DATA, FIELD, ENTRY, ENTRY_ARRAY = 1, 2, 3, 6
# Incompatible flags of a file: XZ, LZ4, keyed hashes (no hash is needed here), ZSTD, offsets of four bytes.
COMPACT = 16
KNOWN_FLAGS = 1 | 2 | 4 | 8 | COMPACT
SIGNATURE = b"LPKSHHRH"
# The place of the items in an entry, of the offsets in an array of entries, of the name in a field.
ITEMS, OFFSETS, NAME = 64, 24, 40

_HEADER = struct.Struct("<8s4xIB7x16x16x16x16s14Q")
_FIELD = struct.Struct("<BB6xQ8xQQ")
_DATA = struct.Struct("<BB6xQ8x8xQQQQ")
_ARRAY = struct.Struct("<BB6xQQ")
_OBJECT = struct.Struct("<BB6xQ")


class Header(NamedTuple):
    """What a file says of itself; places and sizes in bytes, times in microseconds since 1970."""

    signature: bytes
    flags: int
    state: int
    sequence: bytes
    size: int
    arena_size: int
    data_table: int
    data_table_size: int
    field_table: int
    field_table_size: int
    tail_place: int
    num_objects: int
    num_entries: int
    tail_serial: int
    head_serial: int
    entry_array: int
    head_us: int
    tail_us: int


def read_header(handle: int) -> Header:
    """The header of an open file as it is now.

    Raises:
        Unreadable: it is none that is known.
    """
    text = os.pread(handle, _HEADER.size, 0)
    if len(text) < _HEADER.size or not text.startswith(SIGNATURE):
        raise Unreadable("no journal file")
    header = Header(*_HEADER.unpack(text))
    if header.flags & ~KNOWN_FLAGS:
        raise Unreadable("flags {:#x}".format(header.flags))
    return header


class Objects:
    """The objects of a file, as they were when its header was read; what came later is not seen.

    Args:
        handle: the open file.
        header: as it was at the moment that is looked at.
    """

    def __init__(self, handle: int, header: Header) -> None:
        """Map the file.

        Raises:
            Unreadable: it ends before its last object, or cannot be mapped.
        """
        size = os.fstat(handle).st_size
        if not header.size <= header.tail_place < min(header.size + header.arena_size, size):
            raise Unreadable("cut off")
        is_compact = bool(header.flags & COMPACT)
        self.header = header
        try:
            self.map = mmap.mmap(handle, size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise Unreadable(str(error)) from error
        self.payload_place = 72 if is_compact else 64
        self.item_size = 4 if is_compact else 16
        self.item_code = "I" if is_compact else "Q8x"
        self.offset_size = 4 if is_compact else 8
        self.offset_code = "I" if is_compact else "Q"

    def field_values(self, name: bytes) -> "Iterator[Tuple[bytes, Index]]":
        """The values of a field, each with its entries."""
        place = self._fields().get(name, 0)
        while place:
            kind, flags, size, following, first, array, count = _DATA.unpack_from(self.map, place)
            if kind != DATA or following >= place:
                raise Unreadable("a chain of values")
            value = self._payload(place, flags, size).partition(b"=")[2]
            yield value, Index(self, first, (array, count))
            place = following

    def items(self, place: int) -> Tuple[int, ...]:
        """Where the fields of an entry lie."""
        kind, _, size = _OBJECT.unpack_from(self.map, place)
        if kind != ENTRY or not ITEMS <= size <= len(self.map) - place:
            raise Unreadable("an entry")
        count = (size - ITEMS) // self.item_size
        return struct.unpack_from("<" + self.item_code * count, self.map, place + ITEMS)

    def payload(self, place: int) -> bytes:
        """`NAME=value` of a field of an entry."""
        kind, flags, size = _OBJECT.unpack_from(self.map, place)
        if kind != DATA:
            raise Unreadable("a field of an entry")
        return self._payload(place, flags, size)

    def _payload(self, place: int, flags: int, size: int) -> bytes:
        text = self.map[place + self.payload_place : place + size]
        if not flags:
            return text
        from .unpacking import unpack  # noqa: PLC0415 - seldom needed, and ctypes is dear to load

        return unpack(flags, text)

    def _fields(self) -> Dict[bytes, int]:
        """Where the chain of a field's values begins, by its name."""
        head = self.header
        table = struct.unpack_from(
            "<{}Q".format(head.field_table_size // 8), self.map, head.field_table
        )
        found: Dict[bytes, int] = {}
        for first in table[::2]:
            place = first
            while place:
                kind, _, size, following, values = _FIELD.unpack_from(self.map, place)
                if kind != FIELD or (following and following <= place):
                    raise Unreadable("a chain of fields")
                found[self.map[place + NAME : place + size]] = values
                place = following
        return found


class Index:
    """The entries of one value of a field, oldest first.

    Args:
        objects: of the file.
        first: where its first entry lies.
        rest: where the chain of arrays with the others begins, and how many entries there are.
    """

    def __init__(self, objects: Objects, first: int, rest: Tuple[int, int]) -> None:
        """Walk the chain; how many entries there are stays as it is now."""
        self._objects = objects
        self._first = first
        # where each array's offsets lie, and the number of the first of them
        self._arrays: List[Tuple[int, int]] = []
        limit = objects.header.tail_place
        place, count = rest
        self.length = 1
        while place and place <= limit and self.length < count:
            kind, _, size, following = _ARRAY.unpack_from(objects.map, place)
            capacity = (size - OFFSETS) // objects.offset_size
            if kind != ENTRY_ARRAY or capacity <= 0 or (following and following <= place):
                raise Unreadable("a chain of entries")
            self._arrays.append((place + OFFSETS, self.length))
            self.length = min(self.length + capacity, count)
            place = following
        self.length = self._num_until(limit) if first and count else 0

    def place(self, number: int) -> int:
        """Where one entry lies; 0 for one that is only just being written."""
        if number == 0:
            return self._first
        offsets, begin = next(row for row in reversed(self._arrays) if row[1] <= number)
        at = offsets + (number - begin) * self._objects.offset_size
        return int(struct.unpack_from("<" + self._objects.offset_code, self._objects.map, at)[0])

    def places(self, begin: int, end: int) -> List[int]:
        """Where some entries lie, from number `begin` to before `end`.

        Raises:
            Unreadable: they are not in their order.
        """
        found = [self._first] if begin == 0 < end else []
        ends = [row[1] for row in self._arrays[1:]] + [self.length]
        for (offsets, first), last in zip(self._arrays, ends):
            low, high = max(begin, first), min(end, last)
            if low < high:
                code = "<{}{}".format(high - low, self._objects.offset_code)
                at = offsets + (low - first) * self._objects.offset_size
                found += struct.unpack_from(code, self._objects.map, at)
        if not all(map(lt, found, found[1:])):
            raise Unreadable("the order of entries")
        return found

    def _num_until(self, limit: int) -> int:
        """How many entries lie up to a place."""
        low, high = 0, self.length
        while low < high:
            middle = (low + high) // 2
            if 0 < self.place(middle) <= limit:
                low = middle + 1
            else:
                high = middle
        return low
