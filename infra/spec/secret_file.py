"""A file that a secret is read from, looked at and not opened."""

from __future__ import annotations

import stat
from pathlib import Path

# No key is near it; a file that was named by mistake may be as long as a disk.
MAX_BYTES = 65536
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def lies_beside(file: str, document: Path) -> bool:
    """Whether a file lies beside a document or below its folder, wherever links lead, and in no hidden folder.

    A document in a home is beside `.ssh`: what hides is meant for others.

    Args:
        file: as a document names it; a relative path begins in the working directory, as where it is read.
        document: that names it.
    """
    try:
        parts = Path(file).resolve().relative_to(document.parent.resolve()).parts
    except (OSError, ValueError, RuntimeError):  # a circle of links, a zero byte
        return False
    return (
        bool(parts) and not file.startswith("~") and not any(part.startswith(".") for part in parts)
    )


def look_at(path: Path) -> tuple[str | None, bool]:
    """What is said of a file without its content.

    Returns:
        Why no secret can be read from it, as the end of a sentence, or None; and whether other users may read it.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}", False
    is_shared = bool(found.st_mode & _OTHERS)
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file", is_shared
    if found.st_size == 0:
        return "is empty", is_shared
    is_too_long = found.st_size > MAX_BYTES
    return f"has {found.st_size} bytes, more than any key" if is_too_long else None, is_shared
