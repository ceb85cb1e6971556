"""Connections from the lab's network to its hosts, without blocking the loop."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from infra.rehearsal.lab.loop import READ, WRITE, Loop

_IN_PROGRESS = (0, errno.EINPROGRESS)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One connection being made.

    Args:
        connection: the socket.
        done: called once, with the socket or an error.
    """

    connection: socket.socket
    done: Callable[[socket.socket | OSError], None]
    is_over: bool = False


def connect(
    loop: Loop,
    target: tuple[str, int],
    timeout_s: float,
    done: Callable[[socket.socket | OSError], None],
) -> None:
    """Connect to (address, port); `done` gets the connected, blocking socket or the error."""
    connection = socket.socket()
    connection.settimeout(0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    attempt = Attempt(connection=connection, done=done)
    failure = connection.connect_ex(target)
    if failure not in _IN_PROGRESS:
        loop.call_later(0, lambda: _fail(attempt, failure))
        return
    loop.watch(connection, WRITE, lambda: _finish(loop, attempt))
    loop.call_later(timeout_s, lambda: _give_up(loop, attempt))


def read_banner(
    loop: Loop, connection: socket.socket, timeout_s: float, done: Callable[[bytes], None]
) -> None:
    """Read the first bytes that a server sends, none if it does not in time, and hang up."""
    connection.settimeout(0)
    attempt = Attempt(connection=connection, done=lambda _: None)

    def over(greeting: bytes) -> None:
        if attempt.is_over:
            return
        attempt.is_over = True
        loop.forget(connection)
        connection.close()
        done(greeting)

    def read() -> None:
        try:
            over(connection.recv(64))
        except OSError:
            over(b"")

    loop.watch(connection, READ, read)
    loop.call_later(timeout_s, lambda: over(b""))


def _finish(loop: Loop, attempt: Attempt) -> None:
    loop.forget(attempt.connection)
    failure = attempt.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        _fail(attempt, failure)
        return
    attempt.is_over = True
    attempt.connection.settimeout(None)
    attempt.done(attempt.connection)


def _give_up(loop: Loop, attempt: Attempt) -> None:
    if not attempt.is_over:
        loop.forget(attempt.connection)
        _fail(attempt, errno.ETIMEDOUT)


def _fail(attempt: Attempt, failure: int) -> None:
    attempt.is_over = True
    attempt.connection.close()
    attempt.done(OSError(failure, os.strerror(failure)))
