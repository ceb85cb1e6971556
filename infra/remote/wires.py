"""The connection under SSH: a socket tuned for short exchanges and dead peers, or a proxy's."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import socket
import subprocess
import threading
from typing import cast

import paramiko

from infra.remote.corrections import CORRECTIONS
from infra.remote.failures import Unreachable
from infra.remote.pulse import HeardWire, Wire
from infra.remote.ssh_target import SshTarget

# A dead peer is noticed within 15 s: paramiko's own keep-alive never notices one (facts/hosts.md, fact 6).
# The kernel ends a connection this long after the last sign of life, and needs a moment to do so.
KEEPALIVE_IDLE_S = 3
KEEPALIVE_INTERVAL_S = 3
KEEPALIVE_COUNT = 3
USER_TIMEOUT_MS = 12000
# How often paramiko's readers look around (`Transport._active_check_timeout`), and how often ours do.
PARAMIKO_READER_S = 0.1
READER_S = 0.5
_PROXY_END_S = 2.0
_PROXY_WORDS_S = 2.0


class QuickSocket(socket.socket):
    """A TCP socket that acknowledges at once, and whose reader sleeps until something comes.

    paramiko sends small packets and waits for small answers; Nagle's algorithm and delayed
    acknowledgements together cost 40 ms for each of them (facts/testbed.md 2.2). Its readers wake ten times
    a second to see whether they were closed; here closing wakes them, so they may sleep longer.
    """

    def settimeout(self, seconds: float | None, /) -> None:
        """Limit each call; the short limit of paramiko's readers is made longer."""
        super().settimeout(READER_S if seconds == PARAMIKO_READER_S else seconds)

    def close(self) -> None:
        """Hang up, and wake whoever reads."""
        with contextlib.suppress(OSError):  # never connected, or ended by the peer
            self.shutdown(socket.SHUT_RDWR)
        super().close()

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Receive, and ask again for quick acknowledgements: the kernel forgets the wish."""
        data = super().recv(size, flags)
        if hasattr(socket, "TCP_QUICKACK"):  # Linux
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


class _ProxyProgram(paramiko.ProxyCommand):
    """A ProxyCommand that is gone after hanging up; paramiko's leaves the process and its pipes.

    Threads read, write and hang up beside each other. A pipe is closed when nobody is at it: its number may be that of
    another connection a moment later, whose bytes would be taken then.

    `last_words` is what it said before it failed, None while it runs or when it ended well.
    """

    last_words: str | None = None

    def __init__(self, command: str) -> None:
        """Start the program."""
        super().__init__(command)
        self._reading, self._writing, self._listening = (threading.Lock() for _ in range(3))
        self._has_hung_up = False

    def send(self, content: bytes) -> int:  # type: ignore[override]  # the stubs say None, paramiko returns it
        """Send what the program takes now; paramiko's waits for ever for one that takes nothing."""
        with self._writing:
            pipe = self._program.stdin
            if pipe is None or pipe.closed:
                raise BrokenPipeError
            _, writable, _ = select.select([], [pipe], [], self.timeout)
            if not writable:
                raise TimeoutError
            with contextlib.suppress(BrokenPipeError):
                return os.write(pipe.fileno(), content[: select.PIPE_BUF])
        self._listen()
        raise BrokenPipeError

    def recv(self, size: int) -> bytes:
        """What the program passes on; nothing once it has ended, where paramiko's goes on looking."""
        with self._reading:
            pipe = self._program.stdout
            if pipe is None or pipe.closed:
                return b""
            readable, _, _ = select.select([pipe], [], [], self.timeout)
            if not readable:
                raise TimeoutError
            data = os.read(pipe.fileno(), size)
        if not data:
            self._listen()
        return data

    @property
    def _program(self) -> subprocess.Popen[bytes]:
        program: subprocess.Popen[bytes] = self.process
        return program

    def _listen(self) -> None:
        """Keep what a program that has ended by itself said of its failure."""
        with self._listening:
            pipe = self._program.stderr
            if self._has_hung_up or self.last_words is not None or pipe is None or pipe.closed:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._program.wait(_PROXY_WORDS_S)
            if self._program.returncode:
                os.set_blocking(
                    pipe.fileno(), False
                )  # what it has started itself may hold the pipe
                lines = os.fsdecode(pipe.read() or b"").strip().splitlines()
                self.last_words = lines[-1] if lines else f"exit code {self._program.returncode}"

    def close(self) -> None:
        """End the program."""
        program = self._program
        if program.poll() is not None:
            self._listen()
        self._has_hung_up = True
        program.terminate()
        try:
            program.wait(_PROXY_END_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        users = ((self._writing, program.stdin), (self._reading, program.stdout))
        for lock, pipe in (*users, (self._listening, program.stderr)):
            # who stays at it for longer (its end is held by what the program has started) keeps it open
            if lock.acquire(timeout=_PROXY_END_S):
                with contextlib.suppress(OSError):  # what it did not take any more
                    if pipe is not None:
                        pipe.close()
                lock.release()


def dial(target: SshTarget) -> Wire:
    """A connection to a target that no bastion stands before.

    Raises:
        Unreachable: it cannot be made.
    """
    if target.proxy_command is None:
        return _dial_tcp(target)
    if target.proxy_passes_socket:
        return _dial_passed(target, target.proxy_command)
    try:
        return HeardWire(cast(Wire, _ProxyProgram(target.proxy_command)))
    except (OSError, ValueError) as error:
        raise _not_started(target, error) from error


def proxy_failure(target: SshTarget, wire: Wire) -> Unreachable | None:
    """The failure of a proxy program that has ended by itself, None when that is not what happened."""
    program: object = wire.inner if isinstance(wire, HeardWire) else None
    words = program.last_words if isinstance(program, _ProxyProgram) else None
    if words is None:
        return None
    what = f"its ProxyCommand failed: {words.rstrip('.')}."
    return Unreachable(target.name, what, f"Try it by hand: `{target.proxy_command}`.")


def _not_started(target: SshTarget, error: Exception) -> Unreachable:
    """The failure of a proxy program that is not there, or whose words cannot be told apart."""
    what = f"its ProxyCommand cannot be started: {error}."
    return Unreachable(target.name, what, "Correct ProxyCommand.")


def tuned(plain: socket.socket, timeout_s: float) -> socket.socket:
    """The same connection, tuned where it is TCP; a Unix socket stays as it is."""
    plain.settimeout(timeout_s)
    if plain.family not in (socket.AF_INET, socket.AF_INET6):
        return plain
    quick = QuickSocket(fileno=plain.detach())
    quick.settimeout(timeout_s)
    quick.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    quick.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            quick.setsockopt(socket.IPPROTO_TCP, option, value)
    return quick


def _dial_tcp(target: SshTarget) -> socket.socket:
    place = f"{target.host} port {target.port}"
    try:
        plain = socket.create_connection((target.host, target.port), target.connect_timeout_s)
    except (socket.gaierror, UnicodeError) as error:  # the second: a part of it no name can have
        why = error.strerror if isinstance(error, OSError) else "an empty or a too long part"
        what = f"the name {target.host} cannot be resolved ({why})."
        fix = f"Correct {CORRECTIONS[target.told_by].address}, or the name service."
        raise Unreachable(target.name, what, fix) from error
    except ConnectionRefusedError as error:
        what = f"{place} refuses connections."
        raise Unreachable(target.name, what, "Start sshd there, or correct the port.") from error
    except TimeoutError as error:
        what = f"{place} did not answer within {target.connect_timeout_s:g} s."
        fix = "Check that the host is up and that a firewall lets SSH through."
        raise Unreachable(target.name, what, fix) from error
    except OSError as error:
        what = f"{place} cannot be reached: {error.strerror}."
        raise Unreachable(target.name, what, "Check the address and the route to it.") from error
    return tuned(plain, target.connect_timeout_s)


def _dial_passed(target: SshTarget, command: str) -> socket.socket:
    """The socket that a ProxyCommand hands over (ssh_config(5), ProxyUseFdpass)."""
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                program = subprocess.Popen(
                    shlex.split(command),
                    stdin=subprocess.DEVNULL,
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                )
        except (OSError, ValueError) as error:
            raise _not_started(target, error) from error
        ours.settimeout(target.connect_timeout_s)
        try:
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        except OSError:
            descriptors = []
        words = _end(program)
    if not descriptors:
        what = f"its ProxyCommand handed over no connection: {words or 'it said nothing'}."
        raise Unreachable(target.name, what, f"Try it by hand: `{command}`.")
    return tuned(socket.socket(fileno=descriptors[0]), target.connect_timeout_s)


def _end(program: subprocess.Popen[bytes]) -> str:
    """Wait for a proxy that has done its work; returns its last words."""
    try:
        _, stderr = program.communicate(timeout=_PROXY_END_S)
    except subprocess.TimeoutExpired:
        program.kill()
        _, stderr = program.communicate()
    lines = os.fsdecode(stderr).strip().splitlines()
    return lines[-1] if lines else ""
