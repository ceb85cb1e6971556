"""Where a checkpoint lies until it is whole, and who may work on it."""

import contextlib
import errno
import fcntl
import os
import socket
from typing import Iterator, List

from ..host import Refused
from ..trees import Tree, walk
from .manifest import MANIFEST, VERIFIED, Entry

# File systems without locks: then the unit's name alone keeps two stagings of one host apart.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
# Whoever can open it could hold it.
PRIVATE = 0o600


def partial_name(revision: str) -> str:
    """What a checkpoint's folder is called until it is whole."""
    return ".partial-" + revision


def partial_path(target: str) -> str:
    """Where a checkpoint lies until it is whole."""
    above, revision = os.path.split(target)
    return os.path.join(above, partial_name(revision))


@contextlib.contextmanager
def revision_lock(above: Tree, revision: str, operator: str) -> Iterator[None]:
    """Hold one revision of a checkpoint in the folder where it lies: on a shared mount for every host of it.

    Raises:
        Refused: somebody else stages it.
    """
    name = ".lock-" + revision
    handle = above.open(name, os.O_RDWR | os.O_CREAT, PRIVATE)
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
        above.remove(name)
    finally:
        os.close(handle)


def clear_foreign(folder: Tree, entries: List[Entry]) -> None:
    """Remove what an earlier listing put there and this one does not name."""
    known = {entry.name for entry in entries} | {MANIFEST, VERIFIED}
    for path in [path for path, _ in walk(folder) if path not in known]:
        with folder.folder(os.path.dirname(path)) as below:
            below.remove(os.path.basename(path))
