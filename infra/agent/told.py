"""Files that a program must be told of: a mark lies on disk from before the write until the program has succeeded.

So a change whose second half failed, or was cut off by a kill or a power loss, is seen and done again, by whichever
run comes next.
"""

import contextlib
import os
from typing import Callable

from .files import make_folders, missing_folders, replace_file, sync_folder, write_file
from .host import Host
from .item import Item

MARKS = "/var/lib/moe-infra/untold"
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def is_untold(host: Host, path: str) -> bool:
    """Whether a file was written, or was about to be, and its program has not succeeded since."""
    return host.exists(_mark(path))


def write_and_tell(
    host: Host, item: Item, path: str, value: object, tell: Callable[[], None]
) -> None:
    """Bring a path to a state and have its program read it.

    Args:
        host: this host.
        item: the item that it belongs to.
        path: of a file of ours.
        value: the state, as `write_file` takes it.
        tell: runs the program.

    Raises:
        OSError: the mark or the file cannot be written.
        Refused: the program failed; the path is marked, and the next run tells it again.
    """
    mark, was_untold = host.path(_mark(path)), is_untold(host, path)
    folder = os.path.dirname(mark)
    made = missing_folders(folder)
    make_folders(folder, PRIVATE_FOLDER)
    replace_file(mark, (path + "\n").encode("utf-8"), PRIVATE_FILE)
    for changed in sorted({os.path.dirname(each) for each in (mark, *made)}):
        sync_folder(changed)
    try:
        write_file(host, item, path, value)
    except OSError:
        if not was_untold:
            _forget(mark)
        raise
    tell()
    _forget(mark)


def _forget(mark: str) -> None:
    os.unlink(mark)
    with contextlib.suppress(OSError):  # others lie there
        os.rmdir(os.path.dirname(mark))


def _mark(path: str) -> str:
    return "{}/{}".format(MARKS, path.strip("/").replace("/", ":"))
