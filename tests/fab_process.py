"""`fab` to its end, as a process of its own that has nothing left to import.

Starting the interpreter and importing what a command needs takes longer than most commands. So one process of each test
session has imported it, and forks for every command: another process id, environment, folder, output and end, the same
program. Tests that send signals, or of the start itself, start `fab` by its file.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

from infra.spec.load import PROJECT

FAB = str(Path(sys.executable).parent / "fab")
LIMIT_S = 120.0
_START_LIMIT_S = 120.0
_STARTING = threading.Lock()


def run_fab(
    *words: str,
    environment: Mapping[str, str] | None = None,
    own_session: bool = False,
    timeout_s: float = LIMIT_S,
    folder: Path = PROJECT,
) -> subprocess.CompletedProcess[str]:
    """One `fab` in a folder, to its end: no terminal, nothing on standard input.

    Args:
        words: of the command line, after `fab`.
        environment: all of it; this process's own where there is none.
        own_session: whether it leads a session, and so a process group, of its own.
        timeout_s: how long it may take, in seconds.
        folder: that it starts in; the project's where there is none.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    argv = [FAB, *words]
    request = {
        "words": argv,
        "folder": str(folder),
        "environment": dict(os.environ if environment is None else environment),
        "own_session": own_session,
    }
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        socket.socket(socket.AF_UNIX) as asking,
    ):
        asking.connect(_only_server())
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(asking, [text], [out.fileno(), err.fileno()])
        if sent < len(text):  # else it may have been answered by now, and nobody listens
            asking.sendall(text[sent:])
        with asking.makefile("r") as answers:
            pid = int(answers.readline())
            asking.settimeout(timeout_s)
            try:
                code = int(answers.readline())
            except TimeoutError as error:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(argv, timeout_s, _read(out), _read(err)) from error
        return subprocess.CompletedProcess(argv, code, _read(out), _read(err))


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _only_server() -> str:
    with _STARTING:
        return _server()


@cache
def _server() -> str:
    """The socket of this process's own server, which ends with it."""
    folder = tempfile.TemporaryDirectory(prefix="moe-tests-fab-")
    path = f"{folder.name}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fab_forks", path],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    deadline = time.monotonic() + _START_LIMIT_S
    while not Path(path).exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path
