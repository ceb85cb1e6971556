"""Text of files that people name: an ordinary file, of a size that is meant, in UTF-8."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

MAX_BYTES = 1_000_000
# `UserKnownHostsFile /dev/null` is a habit, and such a file ends at once.
_NOTHING = Path("/dev/null")


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The whole text of a file, every end of a line as a newline.

    Raises:
        OSError: it cannot be read, is no ordinary file, or is larger; `why_unreadable` says which.
        UnicodeDecodeError: it is not UTF-8.
    """
    text = read_bytes(path, max_bytes).decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The whole content of a file.

    A pipe without a writer would hold us for ever, a device never ends, and a file may be larger than the memory.

    Raises:
        OSError: it cannot be read, is no ordinary file, or is larger.
    """
    if path == _NOTHING:
        return b""
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    content = b""
    if found.st_size <= max_bytes:
        with path.open("rb") as file:  # which refuses a folder
            content = file.read(max_bytes + 1)
    if (size := max(found.st_size, len(content))) > max_bytes:
        what = f"it is larger than {max_bytes} bytes, it has {size} bytes"
        raise OSError(errno.EFBIG, what, str(path))
    return content
