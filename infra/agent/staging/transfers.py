"""Files on their way: how far each has come, and the wait for more of it."""

import threading
import time
from typing import Callable, List

from .manifest import Entry

# A reader that waits for bytes looks this often whether its writer is still there.
WAIT_S = 1.0


class Transfer:
    """One file while it arrives; readers may have what has arrived, before anybody has verified it.

    Args:
        entry: what it will be.
        open_it: opens it where it grows.
    """

    def __init__(self, entry: Entry, open_it: Callable[[], int]) -> None:
        """Begin with nothing."""
        self.entry = entry
        self.open_it = open_it
        self.num_bytes = 0
        self.is_whole = False
        self.is_given_up = False
        self.sha256 = entry.sha256
        self.came_from = ""
        self._num_beginnings = 0
        self._changed = threading.Condition()

    def advance(self, count: int) -> None:
        """So many bytes more lie on the disk."""
        with self._changed:
            self.num_bytes += count
            self._changed.notify_all()

    def begin_again(self) -> None:
        """What had arrived was wrong: whoever reads it hangs up."""
        with self._changed:
            self.num_bytes = 0
            self._num_beginnings += 1
            self._changed.notify_all()

    def finish(self, sha256: str, came_from: str) -> None:
        """The file is whole and verified."""
        with self._changed:
            self.sha256, self.came_from = sha256, came_from
            self.num_bytes = self.entry.size_bytes
            self.is_whole = True
            self._changed.notify_all()

    def give_up(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self.is_given_up = True
            self._changed.notify_all()

    def moved(self, open_it: Callable[[], int]) -> None:
        """The file lies elsewhere now."""
        with self._changed:
            self.open_it = open_it

    def beginning(self) -> int:
        """A number that changes when the content is begun again."""
        return self._num_beginnings

    def await_bytes(self, offset: int, beginning: int) -> int:
        """How many bytes lie there from an offset on, once there are any; 0 when none will come."""
        with self._changed:
            while True:
                if self._num_beginnings != beginning or self.is_given_up:
                    return 0
                if self.num_bytes > offset or self.is_whole:
                    return self.num_bytes - offset
                self._changed.wait(WAIT_S)


class Rate:
    """Bytes per second over the last seconds."""

    def __init__(self, window_s: float = 10.0) -> None:
        """Look back so far."""
        self._window_s = window_s
        self._seen: List[List[float]] = []

    def per_second(self, num_bytes: int) -> float:
        """The rate, now that so many bytes are there."""
        now = time.monotonic()
        self._seen.append([now, float(num_bytes)])
        while self._seen[1:] and now - self._seen[0][0] > self._window_s:
            self._seen.pop(0)
        first = self._seen[0]
        passed = now - first[0]
        return max(num_bytes - first[1], 0.0) / passed if passed > 0 else 0.0
