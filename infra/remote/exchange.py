"""What is sent to a running command and what comes back, so that neither side waits for the other."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable

import paramiko

from infra.remote.arrival import arrival_of
from infra.remote.outcome import Outcome, Reply
from infra.remote.pulse import Pulse

CHUNK_BYTES = 1 << 18
# While standard input waits for the peer's window, nothing wakes the poll: look again after this.
SENDING_POLL_S = 0.02
# How often a command whose input is held open is told that somebody waits: three may be lost in the time that a
# lease is given (`agent/lease.py`).
SIGN_S = 5.0
SIGN = b"\n"
NO_STATUS = -1
# Of one answer, with what a login prints around it: releases of ten thousand processes are half as long.
MAX_HEARD_BYTES = 1 << 26
# What a shell would say of SIGKILL; which signal it was is not known.
KILLED = 137


class HeardTooMuchError(Exception):
    """The peer says more than `MAX_HEARD_BYTES`: no answer is so long, and somebody has to end it."""


Take = Callable[[bytes], bool]
"""Takes the next piece of standard output; whether the answer is whole with it."""


class Exchange:
    """Sends standard input and collects both outputs at once, once or in turns."""

    def __init__(
        self, channel: paramiko.Channel, reply: Reply | None = None, *, hold_stdin: bool
    ) -> None:
        """Prepare.

        Args:
            channel: of a command that runs.
            reply: for a program that asks before it reads on; see `outcome.Host.run`.
            hold_stdin: leave standard input open when everything is sent, and write a line break to it now and
                then as a sign of life.
        """
        self._channel = channel
        self._pulse = Pulse(channel.get_transport())
        self._reply = reply
        self._unsent = memoryview(b"")
        self._hold_stdin = hold_stdin
        self._stderr: list[bytes] = []
        self._heard_bytes = 0
        self._said_at = 0.0
        self._is_awaited = False
        channel.settimeout(None)

    @property
    def gives_signs(self) -> bool:
        """Whether the command is told now and then that somebody waits: it is, and has been sent everything."""
        return self._is_awaited and self._hold_stdin and self._reply is None and not self._unsent

    def finish(self, said: bytes, deadline: float) -> Outcome:
        """Until the command has ended.

        Raises:
            TimeoutError: the deadline passed first.
            EOFError: the peer gives no sign of life.
            HeardTooMuchError: it says more than any answer has.
        """
        pieces: list[bytes] = []

        def take(piece: bytes) -> bool:
            pieces.append(piece)
            return False

        self.turn(said, deadline, take)
        return self.outcome(deadline, b"".join(pieces))

    def turn(self, said: bytes, deadline: float, take: Take) -> bool:
        """Send, and receive until the answer is whole; False when the command has ended before it was.

        Raises:
            TimeoutError: the deadline passed first.
            EOFError: the peer gives no sign of life.
            HeardTooMuchError: it says more than any answer has.
        """
        self._unsent = memoryview(said)
        self._is_awaited = True
        try:
            return self._heard(deadline, take)
        finally:
            self._is_awaited = False

    def _heard(self, deadline: float, take: Take) -> bool:
        channel = self._channel
        self._stderr.clear()
        self._heard_bytes = 0
        self._pulse = Pulse(channel.get_transport())
        self._said_at = time.monotonic()
        self._send()
        poll = select.poll()
        poll.register(arrival_of(channel), select.POLLIN)
        while True:
            is_over = channel.eof_received or channel.closed
            got, is_whole = self._receive(take)
            if is_whole:
                return True
            if is_over and not got:
                return False
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if self._unsent:
                self._send()
                left = min(left, SENDING_POLL_S)
            if self._hold_stdin:
                left = min(left, self._give_sign())
            next_look_s = self._pulse.check()
            if not got:
                poll.poll(min(left, next_look_s or left) * 1000)

    def outcome(self, deadline: float, stdout: bytes) -> Outcome:
        """How the command ended, which it has.

        Raises:
            TimeoutError: the deadline passed before its exit status came.
        """
        if not self._channel.status_event.wait(max(deadline - time.monotonic(), 0)):
            raise TimeoutError
        return Outcome(exit_code=self._exit_code(), stdout=stdout, stderr=b"".join(self._stderr))

    def _exit_code(self) -> int | None:
        """The exit status; paramiko drops a signal's message, so an orderly end without one is a signal."""
        channel = self._channel
        if channel.exit_status != NO_STATUS:
            return channel.exit_status
        ended_orderly = channel.eof_received and channel.get_transport().is_active()
        return KILLED if ended_orderly else None

    def _send(self) -> None:
        """Send as much as the peer takes now; nothing left means end of file, unless it is held."""
        try:
            while self._unsent and self._channel.send_ready():
                sent = self._channel.send(bytes(self._unsent[:CHUNK_BYTES]))
                self._unsent = self._unsent[sent:]
            if not self._unsent and not self._hold_stdin and not self._channel.eof_sent:
                self._channel.shutdown_write()
        except OSError:
            self._unsent = memoryview(b"")  # the command has ended without reading all of it

    def _receive(self, take: Take) -> tuple[bool, bool]:
        """Take what has come: whether there was anything, and whether the answer is whole."""
        got = is_whole = False
        while self._channel.recv_stderr_ready():
            self._stderr.append(self._count(self._channel.recv_stderr(CHUNK_BYTES)))
            got = True
        while not is_whole and self._channel.recv_ready():
            is_whole = take(self._count(self._channel.recv(CHUNK_BYTES)))
            got = True
        if got:
            self._answer()
        return got, is_whole

    def _count(self, piece: bytes) -> bytes:
        self._heard_bytes += len(piece)
        if self._heard_bytes > MAX_HEARD_BYTES:
            raise HeardTooMuchError
        return piece

    def _answer(self) -> None:
        """Send what a program that has said something is to read next."""
        if self._reply is None:
            return
        said = self._reply(b"".join(self._stderr))
        if said is None:
            self._reply = None
        else:
            self._unsent = memoryview(bytes(self._unsent) + said)

    def _give_sign(self) -> float:
        """Tell the command that somebody waits, when it is time; returns seconds until the next time.

        One that may still ask for something would take the line break for the answer.
        """
        now = time.monotonic()
        if now - self._said_at >= SIGN_S:
            self._said_at = now
            self._answer()
            if self._reply is None and not self._unsent and self._channel.send_ready():
                with contextlib.suppress(OSError):  # it has ended; what is left is read next
                    self._channel.send(SIGN)
        return self._said_at + SIGN_S - now
