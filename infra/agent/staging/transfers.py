"""Files on their way: how far each has come, and the wait for more of it."""

import contextlib
import os
import threading
import time
from typing import List, Optional

from .manifest import Entry

# A reader that waits for bytes looks this often whether its writer is still there.
WAIT_S = 1.0


class Transfer:
    """One file while it arrives; readers may have what has arrived, before anybody has verified it.

    Args:
        entry: what it will be.
        path: where it grows.
    """

    def __init__(self, entry: Entry, path: str) -> None:
        """Begin with nothing."""
        self.entry = entry
        self.path = path
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

    def finish(self, path: str, sha256: str, came_from: str) -> None:
        """The file is whole and verified."""
        with self._changed:
            self.path, self.sha256, self.came_from = path, sha256, came_from
            self.num_bytes = self.entry.size_bytes
            self.is_whole = True
            self._changed.notify_all()

    def give_up(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self.is_given_up = True
            self._changed.notify_all()

    def moved(self, path: str) -> None:
        """The file lies elsewhere now."""
        with self._changed:
            self.path = path

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

    def await_digest(self, limit_s: float) -> Optional[str]:
        """The SHA-256 of the verified file; None when it does not come in time."""
        deadline = time.monotonic() + limit_s
        with self._changed:
            while not self.is_whole:
                left = deadline - time.monotonic()
                if left <= 0 or self.is_given_up:
                    return None
                self._changed.wait(min(left, WAIT_S))
            return self.sha256


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


def force_to_disk(path: str) -> None:
    """Have the kernel write a file or folder out."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
