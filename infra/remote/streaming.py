"""Output of a running command as it comes: bounded memory, and a reader that is slow slows the writer."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator
from typing import Final

import paramiko

from infra.remote.arrival import arrival_of
from infra.remote.exchange import SIGN
from infra.remote.outcome import Outcome, Reply
from infra.remote.pulse import Pulse
from infra.remote.signs import Signs

# What may be on its way unread: the peer stops sending there, so this and not the output bounds the memory.
WINDOW_BYTES: Final = 1 << 20
CHUNK_BYTES = 1 << 17
# Standard error is for last words.
STDERR_BYTES = 1 << 16
SENDING_POLL_S = 0.02
# After so long without output its reader is told that the command still runs.
QUIET_S = 20.0
NO_STATUS = -1
KILLED = 137


class SshStream:
    """One command on a channel of its own; see `outcome.Stream`."""

    def __init__(
        self, channel: paramiko.Channel, signs: Signs, stdin: bytes, reply: Reply | None = None
    ) -> None:
        """Send what the command reads first; standard input then stays open, for signs of life."""
        self._signs = signs
        self._pulse = Pulse(channel.get_transport())
        self._reply = reply
        self._channel = channel
        self._unsent = memoryview(stdin)
        self._stderr = bytearray()
        self._is_closed = threading.Event()
        channel.settimeout(None)

    def chunks(self) -> Iterator[bytes]:
        """Standard output as it comes, until the command has ended; b"" when nothing came for a while."""
        with self._signs.given(self._say_sign):
            yield from self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        channel, poll, told = self._channel, select.poll(), time.monotonic()
        poll.register(arrival_of(channel), select.POLLIN)
        while not self._is_closed.is_set():
            is_over = channel.eof_received or channel.closed
            got = False
            while channel.recv_stderr_ready():
                self._stderr += channel.recv_stderr(CHUNK_BYTES)
                del self._stderr[:-STDERR_BYTES]
                got = True
            if got:
                self._answer()
            if channel.recv_ready():
                yield channel.recv(CHUNK_BYTES)
                # what nobody took kept the peer silent: its silence begins anew
                self._pulse = Pulse(channel.get_transport())
                continue
            if is_over and not got:
                return
            if self._unsent:
                self._send()
            if got or poll.poll(self._pause_s() * 1000):
                continue
            if time.monotonic() - told >= QUIET_S:
                told = time.monotonic()
                yield b""

    def outcome(self, timeout_s: float) -> Outcome:
        """How the command ended; its standard output was given by `chunks`."""
        channel = self._channel
        channel.status_event.wait(timeout_s)
        code: int | None = channel.exit_status
        if code == NO_STATUS:
            transport = channel.get_transport()
            code = KILLED if channel.eof_received and transport.is_active() else None
        return Outcome(exit_code=code, stdout=b"", stderr=bytes(self._stderr))

    def close(self) -> None:
        """Stop reading; the command sees the end of its standard input."""
        self._is_closed.set()
        self._channel.close()

    def _send(self) -> None:
        try:
            while self._unsent and self._channel.send_ready():
                sent = self._channel.send(bytes(self._unsent[:CHUNK_BYTES]))
                self._unsent = self._unsent[sent:]
        except OSError:
            self._unsent = memoryview(b"")  # the command has ended without reading all of it
        if not self._unsent:
            self._answer()  # whether that was all

    def _pause_s(self) -> float:
        """How long to wait for output; a peer that gives no sign of life is hung up on."""
        if self._unsent:
            return SENDING_POLL_S
        try:
            return min(self._pulse.check() or QUIET_S, QUIET_S)
        except EOFError:
            return 0.0  # the channel is closed by now, with an unknown outcome

    def _answer(self) -> None:
        """Send what a program that has said something is to read next."""
        if self._reply is None:
            return
        said = self._reply(bytes(self._stderr))
        if said is None:
            self._reply = None
        else:
            self._unsent = memoryview(bytes(self._unsent) + said)

    def _say_sign(self) -> None:
        """Tell the command that somebody still reads; runs in the thread of `Signs`.

        One that may still ask for something would take the line break for the answer. When nothing more is asked
        (looked at first), what is unsent only becomes less.
        """
        if self._reply is None and not self._unsent and self._channel.send_ready():
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # read as its end
                self._channel.send(SIGN)
