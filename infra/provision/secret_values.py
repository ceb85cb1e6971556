"""The secrets that a stack refers to, read from the operator's environment and files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from infra.errors import PrerequisiteError, StackError
from infra.spec.text_file import read_text

# No key is near it; a file that was named by mistake may be as long as a disk.
MAX_BYTES = 65536


def secret_values(references: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The values by name.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.

    Raises:
        StackError: a variable is not set or empty.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    return {name: _read(name, reference) for name, reference in references.items()}


def secret_path(file: str) -> Path:
    """Where a referenced file lies; `~` is the operator's home."""
    try:
        return Path(file).expanduser()
    except RuntimeError:  # a user without a home
        return Path(file)


def file_flaw(path: Path) -> str | None:
    """Why no secret can be read from a file, as the end of a sentence; its content is not looked at."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_size == 0:
        return "is empty"
    return f"has {found.st_size} bytes, more than any key" if found.st_size > MAX_BYTES else None


def _read(name: str, reference: Mapping[str, str]) -> str:
    variable = reference.get("env")
    if variable is None:
        return _read_file(name, secret_path(reference.get("file", "")))
    value = os.environ.get(variable, "")
    if not value:
        what = f"The stack wants it from the variable {variable}, which is empty or not there."
        raise StackError(f"secrets.{name}", what, "Set it, or take the secret out of the stack.")
    return value


def _read_file(name: str, path: Path) -> str:
    flaw, value = file_flaw(path), ""
    if flaw is None:
        try:
            value = read_text(path, MAX_BYTES).strip()
            flaw = None if value else "is empty"
        except OSError as error:
            flaw = f"cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            flaw = "is no UTF-8 text"
    if flaw is not None:
        fix = "Put the secret there, or name another file."
        raise PrerequisiteError(f"secrets.{name}", f"The file {path} {flaw}.", fix)
    return value
