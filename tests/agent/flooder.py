"""Floods a watcher's port from one address until it is killed: `flooder.py KIND PORT SOURCE`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable

KEPT = 200


def connect(port: int, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 2.0, (source, 0))


def silent(port: int, source: str) -> None:
    """Many connections that say nothing; each that is closed is opened again."""
    kept: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            kept.append(connect(port, source))
        if len(kept) > KEPT:
            kept.pop(0).close()


def garbage(port: int, source: str) -> None:
    """Lines of noise, as fast as they are taken."""
    noise = os.urandom(400).replace(b"\\n", b"")
    while True:
        with contextlib.suppress(OSError), connect(port, source) as wire:
            wire.sendall(noise + b"\\n")
            wire.recv(200)


def slowly(port: int, source: str) -> None:
    """A byte now and then, on many connections."""
    kept: list[socket.socket] = []
    while True:
        for wire in list(kept):
            try:
                wire.send(b"{")
            except OSError:
                kept.remove(wire)
        while len(kept) < KEPT:
            with contextlib.suppress(OSError):
                kept.append(connect(port, source))
        time.sleep(0.05)


def huge(port: int, source: str) -> None:
    """Lines that never end."""
    block = b"x" * (1 << 16)
    while True:
        with contextlib.suppress(OSError), connect(port, source) as wire:
            while True:
                wire.sendall(block)


def churn(port: int, source: str) -> None:
    """Connections that are over at once."""
    while True:
        with contextlib.suppress(OSError):
            connect(port, source).close()


KINDS: dict[str, Callable[[int, str], None]] = {
    "silent": silent,
    "garbage": garbage,
    "slowly": slowly,
    "huge": huge,
    "churn": churn,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
