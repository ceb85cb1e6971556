"""A host without SSH: commands run on this machine, with the promises of `infra.remote.outcome.Host`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping

from infra.remote.failures import OverTime
from infra.remote.outcome import Outcome, Reply

GRACE_S = 0.5


class FakeHost:
    """Runs commands in a local shell.

    Args:
        name: what it is called.
        environment: added to that of the commands: MOE_INFRA_ROOT, a PATH with stand-ins.
        noise: what its login prints before every command.
        loses_connection: whether the connection is lost before the outcome is known.
    """

    def __init__(
        self,
        name: str = "fake-0",
        environment: Mapping[str, str] | None = None,
        *,
        noise: bytes = b"",
        loses_connection: bool = False,
    ) -> None:
        self.name = name
        self.environment = dict(environment or {})
        self.noise = noise
        self.loses_connection = loses_connection
        self.commands: list[str] = []

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout_s: float,
        hold_stdin: bool = False,
        reply: Reply | None = None,
    ) -> Outcome:
        self.commands.append(command)
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **self.environment},
            start_new_session=True,
        )
        assert child.stdin is not None
        hang_up = threading.Event()
        feeder = threading.Thread(
            target=_feed, args=(child, stdin, hang_up if hold_stdin else None), daemon=True
        )
        feeder.start()
        outputs: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        talk = _Talk(child, reply)
        readers = [
            threading.Thread(target=_drain, args=(child, which, outputs, talk), daemon=True)
            for which in outputs
        ]
        for reader in readers:
            reader.start()
        try:
            child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise OverTime(self.name, f"no answer within {timeout_s:g} s.", "Look.") from None
        finally:
            hang_up.set()
            _end(child)
            for thread in (feeder, *readers):
                thread.join()
        if talk.error is not None:
            raise talk.error
        if self.loses_connection:
            return Outcome(exit_code=None, stdout=b"", stderr=b"")
        code = child.returncode
        return Outcome(
            exit_code=128 + signal.SIGKILL if code < 0 else code,
            stdout=self.noise + outputs["stdout"],
            stderr=outputs["stderr"],
        )

    def stream(self, command: str, *, stdin: bytes = b"", reply: Reply | None = None) -> FakeStream:
        assert reply is None  # a shell here asks for nothing
        self.commands.append(command)
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **self.environment},
            start_new_session=True,
        )
        return FakeStream(child, stdin)

    def close(self) -> None:
        pass


class FakeStream:
    """A local command whose output is read while it runs."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes) -> None:
        self.child = child
        self.hang_up = threading.Event()
        self.feeder = threading.Thread(target=_feed, args=(child, stdin, self.hang_up), daemon=True)
        self.feeder.start()

    def chunks(self) -> Iterator[bytes]:
        assert self.child.stdout is not None
        while not self.hang_up.is_set():
            piece = os.read(self.child.stdout.fileno(), 1 << 16)
            if not piece:
                return
            yield piece

    def outcome(self, timeout_s: float) -> Outcome:
        code = self.child.wait(timeout=timeout_s)
        assert self.child.stderr is not None
        stderr = self.child.stderr.read()
        self.close()
        return Outcome(
            exit_code=128 + signal.SIGKILL if code < 0 else code, stdout=b"", stderr=stderr
        )

    def close(self) -> None:
        self.hang_up.set()
        _end(self.child)
        self.feeder.join()
        for pipe in (self.child.stdout, self.child.stderr):
            if pipe is not None:
                pipe.close()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Give a command that has lost its input a moment to end by itself; nothing is left behind."""
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _feed(child: subprocess.Popen[bytes], stdin: bytes, hang_up: threading.Event | None) -> None:
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.write(stdin)
        child.stdin.flush()
    if hang_up is not None:
        hang_up.wait()
    with contextlib.suppress(OSError):
        child.stdin.close()


class _Talk:
    """Answers what a child says on standard error; its error ends the child."""

    def __init__(self, child: subprocess.Popen[bytes], reply: Reply | None) -> None:
        self._child = child
        self._reply = reply
        self.error: BaseException | None = None

    def heard(self, stderr: list[bytes]) -> None:
        if self._reply is None or self._child.stdin is None:
            return
        try:
            said = self._reply(b"".join(stderr))
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self.error, said = error, None
            os.killpg(self._child.pid, signal.SIGKILL)
        if said is None:
            self._reply = None
            return
        with contextlib.suppress(OSError):
            self._child.stdin.write(said)
            self._child.stdin.flush()


def _drain(
    child: subprocess.Popen[bytes], which: str, outputs: dict[str, bytes], talk: _Talk
) -> None:
    stream = child.stdout if which == "stdout" else child.stderr
    assert stream is not None
    said: list[bytes] = []
    with stream:
        while data := os.read(stream.fileno(), 1 << 16):
            said.append(data)
            if which == "stderr":
                talk.heard(said)
    outputs[which] = b"".join(said)
