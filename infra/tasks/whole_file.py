"""Files of the operator's machine, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and rename it there: a full disk leaves what was there before.

    A link stays one, and its file is replaced; a file keeps its mode.

    Raises:
        OSError: it cannot be written.
    """
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.new")
    try:
        beside.unlink(missing_ok=True)  # of a run that was killed
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        if place.exists():
            beside.chmod(place.stat().st_mode)
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
