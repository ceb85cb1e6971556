"""Where a checkpoint lies until it is whole, and who may work on it."""

import contextlib
import errno
import fcntl
import os
import socket
from typing import Iterator, List

from ..host import Refused
from .manifest import MANIFEST, VERIFIED, Entry
from .transfers import remove

# File systems without locks: then the unit's name alone keeps two stagings of one host apart.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def partial_folder(folder: str) -> str:
    """Where a checkpoint lies until it is whole."""
    parent, revision = os.path.split(folder)
    return os.path.join(parent, ".partial-" + revision)


@contextlib.contextmanager
def revision_lock(folder: str, operator: str) -> Iterator[None]:
    """Hold one revision of a checkpoint where it lies: on a shared mount for every host of it.

    Raises:
        Refused: somebody else stages it.
    """
    parent, revision = os.path.split(folder)
    path = os.path.join(parent, ".lock-" + revision)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace") or "somebody"
            raise Refused("it is being staged by {}".format(holder)) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        text = "{} from {} (process {})".format(operator, socket.gethostname(), os.getpid())
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode("utf-8"), 0)
        yield
        remove(path)
    finally:
        os.close(handle)


def clear_foreign(folder: str, entries: List[Entry]) -> None:
    """Remove what an earlier listing put there and this one does not name."""
    known = {entry.name for entry in entries} | {MANIFEST, VERIFIED}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.relpath(path, folder) not in known:
                remove(path)
