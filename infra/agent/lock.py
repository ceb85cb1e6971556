"""One run at a time on a host: an flock that names who holds it."""

import contextlib
import fcntl
import json
import os
import time
from typing import Iterator

from .files import make_folders
from .host import Host, Refused

LOCK_FILE = "/run/moe-infra/agent.lock"
# Two stacks may share a host: whoever comes second waits for the first one's files, not for more.
WAIT_S = 10.0
PAUSE_S = 0.1
# Whoever can open a file, to read it too, can lock it.
PRIVATE = 0o600


@contextlib.contextmanager
def host_lock(host: Host, operator: str, *, writes: bool) -> Iterator[None]:
    """Hold the host for one run; readers share it, and a check leaves no file behind.

    Raises:
        Refused: another run holds it.
    """
    path = host.path(LOCK_FILE)
    if not writes and not os.path.exists(path):
        yield
        return
    make_folders(os.path.dirname(path))
    handle = open_private(path)
    try:
        _take(handle, fcntl.LOCK_EX if writes else fcntl.LOCK_SH)
        if writes:
            text = json.dumps({"operator": operator, "pid": os.getpid(), "since": time.time()})
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode("utf-8"), 0)
        yield
    finally:
        os.close(handle)


def open_private(path: str) -> int:
    """A file that other users can neither read nor lock, opened; made where it is not there."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    if os.fstat(handle).st_mode & 0o077:  # of an older release
        os.fchmod(handle, PRIVATE)
    return handle


def _take(handle: int, kind: int) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= end:
                raise Refused("another run holds this host: {}".format(_holder(handle))) from error
            _pause()
        else:
            return


def _pause() -> None:
    time.sleep(PAUSE_S)


def _holder(handle: int) -> str:
    try:
        document = json.loads(os.pread(handle, 4096, 0).decode("utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(document["since"])))
        return "{}, process {}, since {}".format(document["operator"], document["pid"], since)
    except (ValueError, KeyError, TypeError):
        return "it did not say who it is"
