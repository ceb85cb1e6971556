"""Whether a file is there, for names that anybody may have typed."""

from __future__ import annotations

from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether a file lies there; not where the name is too long, or a folder on the way is closed to us."""
    try:
        return path.is_file()
    except OSError:  # `Path.is_file` says no to what is not there, and raises for these two
        return False
