"""How many connections a run opens at once: the others wait in line, and can be sent away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from infra.remote.failures import Unreachable

# Behind a bastion that a ProxyCommand dials, each is a handshake with its sshd (MaxStartups 10:30:100).
MAX_OPENINGS = 32


class Openings:
    """Places in which connections are being opened, and the line of those who wait for one."""

    def __init__(self, most: int = MAX_OPENINGS) -> None:
        """All places are free.

        Args:
            most: how many there are.
        """
        self._num_free = most
        self._line = 0
        self._changes = threading.Condition()

    @property
    def line(self) -> int:
        """The line that who comes now waits in; when one is sent away the next begins."""
        return self._line

    @contextmanager
    def place(self, host: str, line: int) -> Iterator[None]:
        """Wait for a free place, and have it until the block ends.

        Args:
            host: who is to be connected to.
            line: the one that was there when whoever wants that began.

        Raises:
            Unreachable: that line was sent away, before or meanwhile.
        """
        with self._changes:
            self._changes.wait_for(lambda: self._num_free or self._line != line)
            self.judge(host, line)
            self._num_free -= 1
        try:
            yield
        finally:
            with self._changes:
                self._num_free += 1
                self._changes.notify()

    def judge(self, host: str, line: int) -> None:
        """Refuse whoever is of a line that is none any more.

        Raises:
            Unreachable: it was sent away.
        """
        if self._line != line:
            what = "it was not connected to: the command was interrupted."
            raise Unreachable(host, what, "Run it again.")

    def send_away(self) -> None:
        """Have nobody wait any more: who is connecting hangs up again, and who comes later joins another line."""
        with self._changes:
            self._line += 1
            self._changes.notify_all()
