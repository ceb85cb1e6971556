"""A host over SSH: one verified connection, raw channels, outcomes of any size at line speed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import fabric
import paramiko

from infra.remote.connecting import CHANNEL_S, SshOptions, connect
from infra.remote.exchange import MAX_HEARD_BYTES, Exchange, HeardTooMuchError
from infra.remote.failures import LostConnection, Unreachable, over_time, too_long
from infra.remote.login import CommandLost, PromptTransport
from infra.remote.outcome import Outcome, Reply
from infra.remote.ssh_target import SshTarget
from infra.remote.streaming import WINDOW_BYTES, SshStream
from infra.remote.talking import SshTalk

# How long hanging up waits for whoever is connecting: an interrupt must not wait for a greeting.
CLOSE_S = 0.1


class SshHost:
    """One host; its connection is opened once and again when it was lost.

    `Connection.run` is never used: it is quadratic in the output and leaks its environment into the
    process table (facts/hosts.md, facts 4 and 8).
    """

    def __init__(self, target: SshTarget, options: SshOptions) -> None:
        """Prepare; `open` connects."""
        self.target = target
        self._options = options
        self._connection: fabric.Connection | None = None
        self._guard = threading.Lock()
        self._sends_ahead = True

    @property
    def name(self) -> str:
        """The inventory's name."""
        return self.target.name

    @property
    def line(self) -> int:
        """The line for a connection (`Openings`) as it is now."""
        return self._options.resources.openings.line

    def open(self, line: int | None = None) -> PromptTransport:
        """The live connection; made when there is none, as soon as a place to open it in is free.

        Args:
            line: the one that was there when whoever wants it began, None for now.

        Raises:
            HostsFailed: by its subclass, why that is not possible.
        """
        openings = self._options.resources.openings
        line = openings.line if line is None else line
        with self._guard:
            if (standing := self._standing()) is not None:
                return standing
        # the guard is free while this waits in line: whoever hangs up need not
        with openings.place(self.name, line), self._guard:
            if (standing := self._standing()) is not None:
                return standing
            connection = connect(self.target, self._options)
            try:
                openings.judge(self.name, line)
            except Unreachable:  # `close` did not wait for the greeting
                connection.close()
                raise
            self._connection = connection
            made: PromptTransport = connection.transport
            return made

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout_s: float,
        hold_stdin: bool = False,
        reply: Reply | None = None,
    ) -> Outcome:
        """Run a command in the login's shell; see `outcome.Host`."""
        deadline = time.monotonic() + timeout_s
        try:
            with self._begun(command, timeout_s=timeout_s) as channel:
                exchange = Exchange(channel, reply, hold_stdin=hold_stdin)
                return exchange.finish(stdin, deadline)
        except TimeoutError:
            raise over_time(self.name, timeout_s) from None
        except HeardTooMuchError:
            raise too_long(self.name, MAX_HEARD_BYTES) from None
        except (CommandLost, paramiko.SSHException, EOFError, OSError):  # or dead
            return Outcome(exit_code=None, stdout=b"", stderr=b"")

    def stream(self, command: str, *, stdin: bytes = b"", reply: Reply | None = None) -> SshStream:
        """Start a command whose output is read while it runs; see `outcome.Host`."""
        channel = self._started(command, window_bytes=WINDOW_BYTES)
        return SshStream(channel, self._options.resources.signs, stdin, reply)

    def talk(self, command: str, *, reply: Reply | None = None) -> SshTalk:
        """Start a command that is spoken with in turns; see `outcome.Host`."""
        return SshTalk(self.name, self._started(command), reply)

    def look_after(self) -> None:
        """Hang up on a connection that has died while it was idle.

        Raises:
            HostsFailed: it is dead, and another cannot be made.
        """
        self._with_a_channel(lambda transport: transport.open_session(timeout=CHANNEL_S)).close()

    def _started(self, command: str, window_bytes: int | None = None) -> paramiko.Channel:
        """A channel on which a command waits for what it is to do.

        Raises:
            LostConnection: it was lost with the connection.
        """
        if self._sends_ahead:
            with contextlib.suppress(
                CommandLost
            ):  # once more, and not ahead: nothing was asked yet
                return self._begun(command, timeout_s=CHANNEL_S, window_bytes=window_bytes)
        try:
            return self._begun(command, timeout_s=CHANNEL_S, window_bytes=window_bytes)
        except CommandLost as error:
            what = "the connection was lost before anything was asked."
            raise LostConnection(self.name, what, "Run the command again.") from error

    def _begun(
        self, command: str, *, timeout_s: float, window_bytes: int | None = None
    ) -> paramiko.Channel:
        """A channel on which a command runs.

        Where one was lost that was sent ahead of its channel's number, none is any more: some server may only
        call itself one that counts from 0.

        Raises:
            CommandLost: whether the command was started is not known; the connection is closed, and so it ends.
        """
        limit_s = min(timeout_s, CHANNEL_S)
        ahead = self._sends_ahead
        try:
            return self._with_a_channel(
                lambda transport: transport.start_command(
                    command, window_bytes=window_bytes, timeout_s=limit_s, sends_ahead=ahead
                )
            )
        except CommandLost:
            self._sends_ahead = False
            self.close()
            raise

    def _with_a_channel(
        self, ask: Callable[[PromptTransport], paramiko.Channel]
    ) -> paramiko.Channel:
        """A channel; a connection that died while it was idle is replaced once: nothing was asked yet."""
        line = self.line
        try:
            return ask(self.open(line))
        except (paramiko.SSHException, EOFError, OSError):
            self.close()
        try:
            return ask(self.open(line))  # not where it was an interrupt that hung up
        except (paramiko.SSHException, EOFError, OSError) as error:
            what = f"it lets nobody ask anything: {error or type(error).__name__}."
            raise Unreachable(self.name, what, "Look at sshd there (MaxSessions, load).") from error

    def _standing(self) -> PromptTransport | None:
        """The connection that is there, None where it is none or a dead one."""
        if self._connection is None or not self._connection.is_connected:
            return None
        transport: PromptTransport = self._connection.transport
        return transport

    def close(self) -> None:
        """Hang up; a connection that is only being made ends by its own limits."""
        if not self._guard.acquire(timeout=CLOSE_S):
            return
        try:
            connection, self._connection = self._connection, None
        finally:
            self._guard.release()
        if connection is not None:
            connection.close()
