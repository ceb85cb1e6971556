"""Whether a place takes writes: some bytes in a file without a name, on the disk, and gone again."""

import errno
import os
from typing import Dict, Optional

from ..host import Host, Refused
from .abandoned import within

NUM_BYTES = 4096
LIMIT_S = 5.0
# File systems that have no files without a name.
WITHOUT_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


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


def _write(folder: str) -> None:
    handle = _nameless(folder)
    try:
        os.write(handle, bytes(NUM_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)


def _nameless(folder: str) -> int:
    """A file that nobody else sees, and that is gone when it is closed, also by a kill."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno not in WITHOUT_NAMELESS:
            raise
    import tempfile  # noqa: PLC0415 - seldom needed, and dear to load

    handle, name = tempfile.mkstemp(prefix=".moe-infra-", dir=folder)
    os.unlink(name)
    return handle
