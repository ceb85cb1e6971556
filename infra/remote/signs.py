"""Signs of life for commands whose output is read, however busy or held up their readers are: one thread for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# How often a command is told that somebody still reads: three signs may be lost in the time that its agent waits for
# one (`agent/asker.py`).
SIGN_S: Final = 20.0


class Signs:
    """Gives signs as long as there is somebody to give them to.

    It is no reader that gives them: one is as silent as a dead machine while output comes without a pause, and while
    whoever takes it does not (`less`, a host whose lines wait for those of a slower one).
    """

    def __init__(self, every_s: float = SIGN_S) -> None:
        """Nobody is given any yet.

        Args:
            every_s: seconds between two.
        """
        self._every_s = every_s
        self._says: set[Callable[[], None]] = set()
        self._changes = threading.Condition()
        self._is_running = False

    @contextmanager
    def given(self, say: Callable[[], None]) -> Iterator[None]:
        """Call this now and then, from another thread, until the block ends; it neither waits nor raises."""
        with self._changes:
            self._says.add(say)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._give, name="signs", daemon=True).start()
        try:
            yield
        finally:
            with self._changes:
                self._says.discard(say)
                self._changes.notify_all()

    def _give(self) -> None:
        while True:
            with self._changes:
                if self._changes.wait_for(lambda: not self._says, self._every_s):
                    self._is_running = False
                    return
                says = tuple(self._says)
            for say in says:
                say()
