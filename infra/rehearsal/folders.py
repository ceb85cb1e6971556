"""Where rehearsals put what they write: one folder each, below the machine's folder for temporary files."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.errors import LabError
from infra.rehearsal.lab.starting import LOG

PREFIX = "moe-rehearsal-"
# A rehearsal that starts is registered within moments of making its folder.
_STARTING_S = 60.0
# Pulumi's state and program, keys and logs; on a full disk the engine retries its every write for minutes.
ROOM_MIB = 64


def new_folder() -> Path:
    """A folder that does not exist yet: the lab makes it, and takes it away.

    Raises:
        LabError: there is no room for one; nothing was started.
    """
    parent = _parent()
    free_mib = shutil.disk_usage(parent).free >> 20
    if free_mib < ROOM_MIB:
        what = f"has {free_mib} MiB free, and a rehearsal writes up to {ROOM_MIB} MiB."
        raise LabError(str(parent), what, "Free room there, or name a folder with room in TMPDIR.")
    return parent / f"{PREFIX}{secrets.token_hex(4)}"


def remove_forgotten_folders() -> None:
    """Remove folders of rehearsals that were killed before they were registered; nothing of use is in them."""
    registered = {entry.directory for entry in registry.read_entries()}
    for folder in _parent().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            is_old = time.time() - folder.stat().st_mtime > _STARTING_S
            holds_nothing = {path.name for path in folder.iterdir()} <= {LOG}
            if is_old and holds_nothing and str(folder) not in registered:
                (folder / LOG).unlink(missing_ok=True)
                folder.rmdir()


def _parent() -> Path:
    return Path(tempfile.gettempdir())
