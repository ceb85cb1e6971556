"""The file descriptor by which a channel tells that something came, safe to close while more comes.

paramiko 5.1.0 closes a channel's pipe without a lock (`Channel.close`, `pipe.PosixPipe`). Where data arrives in that
moment, the thread that reads for the whole connection writes into the closed pipe: the write fails and ends the
connection, or it reaches whatever has got the number of the closed descriptor since.
"""

from __future__ import annotations

import threading
from typing import Any

import paramiko
from paramiko import pipe


class LockedPipe(pipe.PosixPipe):
    """paramiko's pipe, which is written, emptied and closed by one thread at a time."""

    def __init__(self) -> None:
        """Make the pipe."""
        self._lock = threading.RLock()  # `set_forever` sets
        self._is_closed = False
        super().__init__()

    def set(self) -> None:
        """Tell that something came; nothing happens once the pipe is closed."""
        with self._lock:
            if not self._is_closed:
                super().set()

    def clear(self) -> None:
        """Tell that nothing is left; nothing happens once the pipe is closed."""
        with self._lock:
            if not self._is_closed:
                super().clear()

    def close(self) -> None:
        """Give both ends back."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                super().close()


def arrival_of(channel: paramiko.Channel) -> int:
    """The descriptor that becomes readable when a channel has received something, or is over."""
    inner: Any = channel  # the stubs leave out what `Channel.fileno` uses
    if inner._pipe is None:  # noqa: SLF001 - there is no other way to give a channel another pipe
        inner._pipe = LockedPipe()  # noqa: SLF001 - as above
        stdout, stderr = pipe.make_or_pipe(inner._pipe)  # noqa: SLF001 - as above
        inner.in_buffer.set_event(stdout)
        inner.in_stderr_buffer.set_event(stderr)
    return int(inner.fileno())
