"""The host that the agent runs on: its files below one root, and its programs, each with a time limit."""

import contextlib
import errno
import os
import signal
import subprocess
import threading
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

MAX_TEXT_BYTES = 262144
REAP_S = 1.0
CLEAN_S = 5.0
OS_FIXES = {
    errno.EROFS: "mount it writable (mount -o remount,rw {0}) after a look at dmesg",
    errno.ENOSPC: "free space (df -h {0}; df -i {0})",
    errno.EDQUOT: "free space (quota)",
}


class Refused(Exception):
    """An item cannot be read or written; the text says why, for the report."""


class Finished(NamedTuple):
    """How a program ended. `exit_code` is None when it was not there or ran over its time."""

    exit_code: Optional[int]
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that it wrote, errors first."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else "exit code {}".format(self.exit_code)


class Host:
    """Files and programs of this host.

    Args:
        root: prefix of every absolute path, "" for the host itself.
    """

    def __init__(self, root: str = "") -> None:
        """Take paths below `root`."""
        self.root = root.rstrip("/")
        self.owner = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        self._children: Set[int] = set()
        self._cleanups: List[List[str]] = []
        self._is_ending = False
        self._looks: Dict[Tuple[str, ...], Finished] = {}
        self._guard = threading.Lock()

    def path(self, absolute: str) -> str:
        """Where `absolute` really lies."""
        return self.root + absolute

    def exists(self, absolute: str) -> bool:
        """Whether anything lies there, a dangling link included."""
        return os.path.lexists(self.path(absolute))

    def read_bytes(self, absolute: str) -> bytes:
        """The whole content of a file."""
        with open(self.path(absolute), "rb") as stream:
            return stream.read()

    def read_word(self, absolute: str) -> str:
        """A small file's text with every run of white space made one blank (procfs separates by tabs)."""
        with open(self.path(absolute), "rb") as stream:
            return " ".join(stream.read(MAX_TEXT_BYTES).decode("utf-8", "replace").split())

    def write_knob(self, absolute: str, value: str) -> None:
        """Write to a kernel knob in one write(2), so that the kernel's answer is this call's."""
        handle = os.open(self.path(absolute), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, (value + "\n").encode())
        finally:
            os.close(handle)

    def write_at(self, absolute: str, offset: int, content: bytes) -> None:
        """Write some bytes into the middle of a file that is there, in one pwrite(2)."""
        handle = os.open(self.path(absolute), os.O_WRONLY)
        try:
            os.pwrite(handle, content, offset)
        finally:
            os.close(handle)

    def has_systemd(self) -> bool:
        """Whether systemd is this host's PID 1 (sd_booted(3))."""
        return self.exists("/run/systemd/system")

    def run(
        self,
        argv: List[str],
        timeout_s: float = 10.0,
        environment: Optional[Dict[str, str]] = None,
    ) -> Finished:
        """Run a program in a session of its own; it is killed, with its children, at `timeout_s`.

        A program that cannot even be killed (a wedged driver) is left behind after a second: it must
        not hang the agent.
        """
        try:
            child = self._start(argv, environment)
        except OSError as error:
            return Finished(None, "", "{}: {}".format(argv[0], error.strerror))
        try:
            return _communicate(child, argv[0], timeout_s)
        finally:
            with self._guard:
                self._children.discard(child.pid)

    def look(self, argv: List[str], timeout_s: float = 10.0) -> Finished:
        """What a program that changes nothing says; several items ask it once, until `forget_looks`."""
        key = tuple(argv)
        if key not in self._looks:
            self._looks[key] = self.run(argv, timeout_s)
        return self._looks[key]

    def forget_looks(self) -> None:
        """Ask anew from now on: something was changed."""
        self._looks.clear()

    @contextlib.contextmanager
    def open(self, argv: List[str]) -> "Iterator[subprocess.Popen[bytes]]":
        """A program whose output is read while it runs; it is killed, with its children, in the end.

        Raises:
            Refused: there is no such program.
        """
        try:
            child = self._start(argv, None)
        except OSError as error:
            raise Refused("{}: {}".format(argv[0], error.strerror)) from error
        try:
            with child:
                try:
                    yield child
                finally:
                    if child.poll() is None:
                        _kill_group(child.pid)
        finally:
            with self._guard:
                self._children.discard(child.pid)

    @contextlib.contextmanager
    def cleaning(self, argv: List[str]) -> Iterator[None]:
        """Run a program when the block ends early: at an error, or when nobody waits for the agent any more."""
        with self._guard:
            self._cleanups.append(argv)
        try:
            yield
        except BaseException:
            self.run(argv, CLEAN_S)
            raise
        finally:
            with self._guard:
                self._cleanups.remove(argv)

    def end_children(self) -> "List[subprocess.Popen[bytes]]":
        """Kill every program that is still running, with its children; returns what cleans up behind them.

        The agent must not wait for that: until it ends itself it may go on with what somebody else may do by then.
        """
        with self._guard:
            self._is_ending = True
            for pid in self._children:
                _kill_group(pid)
            cleanups = list(self._cleanups)
        begun = []
        for argv in cleanups:
            with contextlib.suppress(OSError):
                limited = ["timeout", "-s", "KILL", str(CLEAN_S), *argv]
                nowhere = subprocess.DEVNULL
                begun.append(
                    subprocess.Popen(
                        limited,
                        stdin=nowhere,
                        stdout=nowhere,
                        stderr=nowhere,
                        start_new_session=True,
                    )
                )
        return begun

    def _start(
        self, argv: List[str], environment: Optional[Dict[str, str]]
    ) -> "subprocess.Popen[bytes]":
        """A program in a session of its own; none is started once the agent is ending."""
        variables = dict(os.environ, LC_ALL="C", SYSTEMD_COLORS="0", SYSTEMD_PAGER="")
        variables.update(environment or {})
        with self._guard:
            if self._is_ending:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                start_new_session=True,
            )
            self._children.add(child.pid)
        return child


def _communicate(child: "subprocess.Popen[bytes]", name: str, timeout_s: float) -> Finished:
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_group(child.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=REAP_S)
        message = "{} did not answer within {:g} s and was killed".format(name, timeout_s)
        return Finished(None, "", message)
    return Finished(
        child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
    )


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        os.killpg(pid, signal.SIGKILL)


def mending(error: OSError, path: str) -> str:
    """What to do on a host about a file system that takes nothing, "" for any other error.

    Args:
        error: what a write met.
        path: where it was to be; what is named is where that file system is mounted.
    """
    while path.startswith("/") and not os.path.ismount(path):
        path = os.path.dirname(path)
    return OS_FIXES.get(error.errno or 0, "").format(path)
