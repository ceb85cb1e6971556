"""A host over SSH: one verified connection, raw channels, outcomes of any size at line speed."""

from __future__ import annotations

import select
import threading
import time

import fabric
import paramiko

from infra.inventory.hosts import InventoryHost
from infra.remote.connecting import CHANNEL_S, SshOptions, connect
from infra.remote.failures import LostConnection, OverTime, Unreachable
from infra.remote.outcome import Outcome, Reply
from infra.remote.pulse import Pulse
from infra.remote.ssh_target import SshTarget, resolve_target
from infra.remote.streaming import WINDOW_BYTES, SshStream

CHUNK_BYTES = 1 << 18
# While standard input waits for the peer's window, nothing wakes the poll: look again after this.
SENDING_POLL_S = 0.02
NO_STATUS = -1
# How long hanging up waits for whoever is connecting: an interrupt must not wait for a greeting.
CLOSE_S = 0.1
# What a shell would say of SIGKILL; which signal it was is not known.
KILLED = 137


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

    @property
    def name(self) -> str:
        """The inventory's name."""
        return self.target.name

    def open(self) -> paramiko.Transport:
        """The live connection; made when there is none.

        Raises:
            HostsFailed: by its subclass, why that is not possible.
        """
        with self._guard:
            if self._connection is None or not self._connection.is_connected:
                self._connection = connect(self.target, self._options)
            transport: paramiko.Transport = self._connection.transport
            return transport

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
        channel = self._session(timeout_s)
        deadline = time.monotonic() + timeout_s
        with channel:
            try:
                channel.exec_command(command)
                exchange = _Exchange(channel, stdin, reply, hold_stdin=hold_stdin)
                return exchange.finish(deadline)
            except TimeoutError:
                what = f"no answer within {timeout_s:g} s; what was started there is being ended."
                raise OverTime(self.name, what, "Look at the host, then run again.") from None
            except (
                paramiko.SSHException,
                EOFError,
                OSError,
            ):  # lost before the command was sent, or dead
                return Outcome(exit_code=None, stdout=b"", stderr=b"")

    def stream(self, command: str, *, stdin: bytes = b"", reply: Reply | None = None) -> SshStream:
        """Start a command whose output is read while it runs; see `outcome.Host`."""
        channel = self._session(CHANNEL_S, window_bytes=WINDOW_BYTES)
        try:
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            channel.close()
            what = "the connection was lost before anything was asked."
            raise LostConnection(self.name, what, "Run the command again.") from error
        return SshStream(channel, stdin, reply)

    def _session(self, timeout_s: float, window_bytes: int | None = None) -> paramiko.Channel:
        """A channel; a connection that died while it was idle is replaced once: nothing was asked yet."""
        limit_s = min(timeout_s, CHANNEL_S)
        try:
            return self.open().open_session(window_size=window_bytes, timeout=limit_s)
        except (paramiko.SSHException, EOFError, OSError):
            self.close()
        try:
            return self.open().open_session(window_size=window_bytes, timeout=limit_s)
        except (paramiko.SSHException, EOFError, OSError) as error:
            what = f"it lets nobody ask anything: {error or type(error).__name__}."
            raise Unreachable(self.name, what, "Look at sshd there (MaxSessions, load).") from error

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


class _Exchange:
    """Sends standard input and collects both outputs at once, so that neither side waits for the other."""

    def __init__(
        self, channel: paramiko.Channel, stdin: bytes, reply: Reply | None, *, hold_stdin: bool
    ) -> None:
        self._channel = channel
        self._pulse = Pulse(channel.get_transport())
        self._reply = reply
        self._unsent = memoryview(stdin)
        self._hold_stdin = hold_stdin
        self._stdout: list[bytes] = []
        self._stderr: list[bytes] = []
        channel.settimeout(None)

    def finish(self, deadline: float) -> Outcome:
        """Until the command has ended.

        Raises:
            TimeoutError: the deadline passed first.
            EOFError: the peer gives no sign of life.
        """
        channel = self._channel
        self._send()
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        while True:
            is_over = channel.eof_received or channel.closed
            got = self._receive()
            if is_over and not got:
                break
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if self._unsent:
                self._send()
                left = min(left, SENDING_POLL_S)
            next_look_s = self._pulse.check()
            if not got:
                poll.poll(min(left, next_look_s or left) * 1000)
        if not channel.status_event.wait(max(deadline - time.monotonic(), 0)):
            raise TimeoutError
        return Outcome(
            exit_code=self._exit_code(),
            stdout=b"".join(self._stdout),
            stderr=b"".join(self._stderr),
        )

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

    def _receive(self) -> bool:
        """Take what has come; whether there was anything."""
        got = False
        while self._channel.recv_ready():
            self._stdout.append(self._channel.recv(CHUNK_BYTES))
            got = True
        while self._channel.recv_stderr_ready():
            self._stderr.append(self._channel.recv_stderr(CHUNK_BYTES))
            got = True
        if got and self._reply is not None:
            said = self._reply(b"".join(self._stderr))
            if said is None:
                self._reply = None
            else:
                self._unsent = memoryview(bytes(self._unsent) + said)
        return got


def open_host(host: InventoryHost, options: SshOptions) -> SshHost:
    """A connected host of the inventory.

    Raises:
        StackError: its ssh arguments are wrong.
        HostsFailed: by its subclass, why there is no connection.
    """
    target = resolve_target(host, options.defaults, options.resources.ssh_config)
    opened = SshHost(target, options)
    opened.open()
    return opened
