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
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if writes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused("another run holds this host: {}".format(_holder(handle))) from error
        if writes:
            text = json.dumps({"operator": operator, "pid": os.getpid(), "since": time.time()})
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode("utf-8"), 0)
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        document = json.loads(os.pread(handle, 4096, 0).decode("utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(document["since"])))
        return "{}, process {}, since {}".format(document["operator"], document["pid"], since)
    except (ValueError, KeyError, TypeError):
        return "it did not say who it is"
