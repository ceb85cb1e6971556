"""How lines travel: frames of columns, which either side makes and reads without looking at each line.

A frame is compressed as a piece of one zlib stream; unpacked it is a line of JSON, then its columns:

    {"num_lines": 2, "processes": ["a/0"], "process": 0, "cursor": "…", "is_caught_up": false}
    times      8 bytes each, little-endian, microseconds since 1970
    processes  2 bytes each, little-endian, their place among all that were named; none where `process` says it for all
    messages   UTF-8 or whatever was written, separated by newlines

`processes` names those that are new to this stream; `cursor` is journald's name for the place up to which everything
has come; `is_caught_up`: what had been written when it was asked is over.
"""

import json
import struct
import zlib
from itertools import chain, repeat
from typing import Callable, Dict, List, Sequence, Tuple

from .lines import Lines

LEVEL = 1

Write = Callable[[bytes], None]


class FrameWriter:
    """Sends lines as frames."""

    def __init__(self, write: Write) -> None:
        """Begin the stream."""
        self._write = write
        self._packer = zlib.compressobj(LEVEL)

    def processes(self, names: Sequence[str]) -> None:
        """Name the processes that lines will be of; they are counted from 0."""
        self._send({"num_lines": 0, "processes": list(names)})

    def lines(self, lines: Lines) -> None:
        """Some lines; each line of a message that has several is one."""
        text, (times, units) = b"\n".join(lines.messages), (lines.times, lines.units)
        if text.count(b"\n") >= len(times) > 0:
            times, units = _spread(lines)
        head: Dict[str, object] = {"num_lines": len(times), "cursor": lines.cursor.decode()}
        columns = [struct.pack("<{}Q".format(len(times)), *times)]
        if len(set(units)) == 1:
            head["process"] = units[0]
        else:
            columns.append(struct.pack("<{}H".format(len(units)), *units))
        self._send(head, *columns, text)

    def caught_up(self) -> None:
        """What had been written when it was asked is over."""
        self._send({"num_lines": 0, "is_caught_up": True})

    def end(self) -> None:
        """The end of the stream."""
        self._write(self._packer.flush(zlib.Z_FINISH))

    def _send(self, head: Dict[str, object], *columns: bytes) -> None:
        parts = (json.dumps(head).encode("ascii"), b"\n", *columns)
        packed = list(map(self._packer.compress, parts))
        self._write(b"".join([*packed, self._packer.flush(zlib.Z_SYNC_FLUSH)]))


def _spread(lines: Lines) -> Tuple[List[int], List[int]]:
    """Times and units of every line, where a message has several."""
    counts = [message.count(b"\n") + 1 for message in lines.messages]
    times, units = (
        list(chain.from_iterable(map(repeat, column, counts)))
        for column in (lines.times, lines.units)
    )
    return times, units
