"""Whether a place takes writes: some bytes in a file without a name, on the disk, and gone again."""

import errno
import os
from typing import Dict, Optional

from ..host import Host, Refused
from ..trees import open_tree
from .abandoned import within

NUM_BYTES = 4096
LIMIT_S = 5.0


def try_writing(host: Host, path: str) -> Dict[str, Optional[str]]:
    """Write where a path lies or would lie, and take it back.

    Returns:
        `at`, the nearest folder that is there; `error`, why it takes nothing, or None; `code`, its name (EROFS).
    """
    place = path
    while place != "/" and not os.path.isdir(host.path(place)):
        place = os.path.dirname(place)
    found: Dict[str, Optional[str]] = {"at": place, "error": None, "code": None}
    try:
        within(LIMIT_S, lambda: _write(host.path(place) or "/"))
    except OSError as error:
        found["error"] = error.strerror or str(error)
        found["code"] = errno.errorcode.get(error.errno or 0)
    except Refused as error:
        found["error"] = str(error)
    return found


def _write(path: str) -> None:
    with open_tree(path) as folder:
        handle = folder.nameless()
    try:
        os.write(handle, bytes(NUM_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
