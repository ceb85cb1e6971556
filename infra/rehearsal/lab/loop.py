"""The lab's one loop: descriptors, timers and child processes, each with a function to call."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Loop:
    """A selector, a timer heap and a table of children."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._children: dict[int, Callable[[int], None]] = {}
        self._woken, waker = socket.socketpair()
        self._woken.settimeout(0)
        waker.settimeout(0)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.watch(self._woken, READ, self._reap)

    def watch(self, what: socket.socket | int, events: int, call: Callable[[], None]) -> None:
        """Call whenever the descriptor is ready for these events."""
        self._selector.register(what, events, call)

    def change(self, what: socket.socket | int, events: int, call: Callable[[], None]) -> None:
        """Wait for something else on a watched descriptor."""
        self._selector.modify(what, events, call)

    def forget(self, what: socket.socket | int) -> None:
        """Stop watching; before the descriptor is closed."""
        self._selector.unregister(what)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call once after a delay."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), call))

    def on_exit(self, pid: int, call: Callable[[int], None]) -> None:
        """Call with the wait status when this child has ended."""
        self._children[pid] = call

    def run(self) -> None:
        """Serve for ever."""
        while True:
            wait_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(wait_s):
                if key.fd in self._selector.get_map():  # an earlier call may have ended it
                    key.data()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def _reap(self) -> None:
        self._woken.recv(4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            call = self._children.pop(pid, None)
            if call is not None:
                call(status)
