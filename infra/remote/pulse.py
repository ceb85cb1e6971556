"""Noticing a dead peer behind a bastion or a proxy program, where no socket option of ours reaches it."""

from __future__ import annotations

import time
from typing import Any, Protocol

import paramiko
from paramiko.common import cMSG_GLOBAL_REQUEST

# A peer that lives answers within one round trip; it is asked only while somebody waits for it in silence.
ASK_AFTER_S = 3.0
DEAD_AFTER_S = 12.0
QUESTION = "keepalive@openssh.com"


class Wire(Protocol):
    """What paramiko needs of a socket."""

    def send(self, data: bytes, /) -> int:
        """Send some of the data; returns how much."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Receive up to a size; nothing means the end."""
        ...

    def settimeout(self, seconds: float | None, /) -> None:
        """Limit each call."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class HeardWire:
    """A wire that knows when its peer was last heard of."""

    def __init__(self, inner: Wire) -> None:
        """Wrap a channel of a bastion or the pipe of a proxy program; the peer counts as heard of."""
        self._inner = inner
        self._heard_at = time.monotonic()
        self._blocked_at: float | None = None
        self._closed = False  # paramiko's repr of a connection looks at it

    @property
    def inner(self) -> Wire:
        """What carries it."""
        return self._inner

    def silence_s(self) -> float:
        """Seconds since anything came."""
        return time.monotonic() - self._heard_at

    def send(self, data: bytes) -> int:
        """Send some of the data.

        Raises:
            ConnectionAbortedError: for as long as a peer may be silent it has taken nothing.
        """
        try:
            sent = self._inner.send(data)
        except TimeoutError:
            now = time.monotonic()
            self._blocked_at = self._blocked_at or now
            if now - max(self._heard_at, self._blocked_at) >= DEAD_AFTER_S:
                raise ConnectionAbortedError("the peer takes nothing any more") from None
            raise
        self._blocked_at = None
        return sent

    def recv(self, size: int) -> bytes:
        """Receive up to a size."""
        data = self._inner.recv(size)
        self._heard_at = time.monotonic()
        return data

    def settimeout(self, seconds: float | None) -> None:
        """Limit each call."""
        self._inner.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._inner.close()


class Pulse:
    """Asks a silent peer for a sign of life; does nothing where the kernel does that by itself."""

    def __init__(self, transport: paramiko.Transport) -> None:
        """Begin to wait for a peer: silence counts from now."""
        self._transport = transport
        self._wire = transport.sock if isinstance(transport.sock, HeardWire) else None
        self._begun_at = self._asked_at = time.monotonic()

    def check(self) -> float | None:
        """Look after the peer; returns seconds until the next look, None where no look is needed.

        Raises:
            EOFError: the peer is dead; the connection is closed.
        """
        if self._wire is None:
            return None
        now = time.monotonic()
        silence_s = min(self._wire.silence_s(), now - self._begun_at)
        if silence_s >= DEAD_AFTER_S:
            self._transport.close()
            raise EOFError("no sign of life")
        if min(silence_s, now - self._asked_at) >= ASK_AFTER_S:
            self._asked_at = now
            self._ask()
        return ASK_AFTER_S / 2

    def _ask(self) -> None:
        """A request that every server answers, be it with no; paramiko has no call that asks without waiting."""
        message = paramiko.Message()
        message.add_byte(cMSG_GLOBAL_REQUEST)
        message.add_string(QUESTION)
        message.add_boolean(True)  # noqa: FBT003 - wants a reply
        transport: Any = self._transport  # the stubs leave this method out
        transport._send_user_message(message)  # noqa: SLF001 - as above
