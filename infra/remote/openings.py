"""How many connections a run opens at once: the others wait in line, and can be sent away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from infra.remote.failures import Unreachable

# Behind a bastion that a ProxyCommand dials, each is a handshake with its sshd (MaxStartups 10:30:100).
MAX_OPENINGS = 32


class Openings:
    """Places in which connections are being opened."""

    def __init__(self, most: int = MAX_OPENINGS) -> None:
        """All places are free.

        Args:
            most: how many there are.
        """
        self._num_free = most
        self._num_sent_away = 0
        self._changes = threading.Condition()

    @contextmanager
    def place(self, host: str) -> Iterator[None]:
        """Wait for a free place, and have it until the block ends.

        Args:
            host: who is to be connected to.

        Raises:
            Unreachable: the line was sent away meanwhile.
        """
        with self._changes:
            before = self._num_sent_away
            self._changes.wait_for(lambda: self._num_free or self._num_sent_away != before)
            if self._num_sent_away != before:
                what = "it was not connected to: the command was interrupted."
                raise Unreachable(host, what, "Run it again.")
            self._num_free -= 1
        try:
            yield
        finally:
            with self._changes:
                self._num_free += 1
                self._changes.notify()

    def send_away(self) -> None:
        """Have nobody wait any more; who has a place keeps it, and who comes later gets one."""
        with self._changes:
            self._num_sent_away += 1
            self._changes.notify_all()
