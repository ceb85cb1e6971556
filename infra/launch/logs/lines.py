"""Lines of logs as columns: a million of them is cut, joined and put in order without a step per line."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

Shape = Callable[["LogLines"], list[str]]
"""What is shown of some lines, one text each."""


@dataclass(slots=True)
class LogLines:
    """Some lines.

    Args:
        times: microseconds since 1970.
        processes: who wrote each; as long as `times`.
        messages: without their newline; as long as `times`.
    """

    times: list[int]
    processes: list[str]
    messages: list[str]

    @classmethod
    def none(cls) -> LogLines:
        """No lines."""
        return cls([], [], [])

    def __len__(self) -> int:
        return len(self.times)

    def add(self, others: LogLines) -> None:
        """Put others behind them."""
        self.times += others.times
        self.processes += others.processes
        self.messages += others.messages

    def take(self, limit_us: int) -> LogLines:
        """Remove and return the first lines, up to those of a moment."""
        return self.take_first(bisect.bisect_right(self.times, limit_us))

    def take_first(self, count: int) -> LogLines:
        """Remove and return so many of the first lines."""
        taken = LogLines(self.times[:count], self.processes[:count], self.messages[:count])
        for column in (self.times, self.processes, self.messages):
            del column[:count]
        return taken


def in_order(parts: Sequence[LogLines], shape: Shape) -> list[str]:
    """All of them in the order of time, each as it is shown; lines of one moment stay as they are.

    Args:
        parts: of one host each. A part is shaped before it is put in order: most of its neighbours are then alike.
        shape: what is shown of each line of a part.
    """
    texts = list(chain.from_iterable(map(shape, parts)))
    if sum(map(bool, map(len, parts))) <= 1:
        return texts
    times = list(chain.from_iterable(part.times for part in parts))
    return list(map(texts.__getitem__, sorted(range(len(times)), key=times.__getitem__)))
