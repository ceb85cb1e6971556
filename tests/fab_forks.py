"""Forks processes that are `fab`, from one that has imported it: `python -m tests.fab_forks SOCKET`, for `fab_process`.

A request is one connection: a JSON document with `words`, `folder`, `environment` and `own_session`, and the
descriptors of standard output and error. The answers are the process id, then its exit code, a line each.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
import tempfile
import time
from typing import Any, NoReturn

from infra.tasks.start import main
from infra.tasks.table import GROUPS

MAX_REQUEST = 1 << 20
# While processes run; there is no portable way to be woken by the end of one and by a request.
LOOK_EVERY_S = 0.01


class _End:
    """The exit code of the command that this process became, where it is known."""

    code: int | None = None


def import_tasks() -> None:
    """Import both programs and what the tasks import: a process that is forked then has it."""
    for program in ("command_line", "fabric_program"):
        importlib.import_module(f"infra.tasks.{program}")
    for _, entries in GROUPS:
        for entry in entries:
            importlib.import_module(f"infra.tasks.{entry.module}")


def serve(path: str) -> list[str]:
    """Fork a process for each request, until standard input ends.

    Returns:
        The words of a command, in the process that is to be it. In the first one this ends the interpreter.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen()
    os.rename(f"{path}.new", path)  # noqa: PTH104 - whoever sees it can connect
    running: dict[int, socket.socket] = {}
    while True:
        wait_s = LOOK_EVERY_S if running else None
        ready, _, _ = select.select([listener, sys.stdin], [], [], wait_s)
        if sys.stdin in ready:
            sys.exit(0)
        if listener in ready:
            asking, _ = listener.accept()
            request, output = _read(asking)
            pid = os.fork()
            if pid == 0:
                for held in (listener, asking, *running.values()):
                    held.close()
                _become(request, output)
                return [str(word) for word in request["words"]]
            for descriptor in output:
                os.close(descriptor)
            _tell(asking, pid)
            running[pid] = asking
        for pid in tuple(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                asking = running.pop(pid)
                _tell(asking, os.waitstatus_to_exitcode(status))
                asking.close()


def _read(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the descriptors of its standard output and error."""
    text, output, _, _ = socket.recv_fds(asking, MAX_REQUEST, 2)
    while not text.endswith(b"\n"):
        text += asking.recv(MAX_REQUEST)
    return json.loads(text), output


def _tell(asking: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # who asked may have gone
        asking.sendall(b"%d\n" % number)


def _become(request: dict[str, Any], output: list[int]) -> None:
    """Make this process what a new one would be."""
    if request["own_session"]:
        os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip((nothing, *output), range(3), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None


def run() -> NoReturn:
    """Leave as the file of `fab` does; its code is remembered."""
    try:
        main()
        sys.exit(0)
    except SystemExit as end:
        code = end.code or 0
        _End.code = code if isinstance(code, int) else None
        raise


def end_at_once() -> None:
    """End a command without freeing all that was imported for it, which copies every page of it.

    The interpreter has waited for threads and called everybody else by now. What cannot be written is left to it.
    """
    if _End.code is None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(_End.code)


if __name__ == "__main__":
    atexit.register(end_at_once)  # before anybody else, to be called last
    import_tasks()
    # so that looking for garbage does not copy every page in each of them
    gc.collect()
    gc.freeze()
    sys.argv = serve(sys.argv[1])
    sys.path[0] = os.path.dirname(sys.argv[0])  # noqa: PTH120 - as the interpreter does it
    run()
