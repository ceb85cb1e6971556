"""Writes files below one folder, or nowhere: no name and no link leads out of it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from infra.errors import StackError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = (errno.ELOOP, errno.ENOTDIR)
_PROGRAM = "launch"


def write_below(folder: Path, files: Mapping[str, str]) -> None:
    """Write each file beside its place below the folder, and rename it there.

    Args:
        folder: made where there is none; it may be a link itself.
        files: text by path below it.

    Raises:
        StackError: a path leads out of the folder (then nothing is written), or cannot be written.
    """
    for name in files:
        if _parts(name) is None:
            what = f"{name!r} is no path below it."
            raise StackError(f"--to {folder}", what, "Report this: no plan should come so far.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name, text in files.items():
                _write(root, _parts(name) or (), text)
        finally:
            os.close(root)
    except OSError as error:
        is_link = error.errno in _LINK
        reason = "it is a link, or no folder" if is_link else error.strerror
        what = f"{error.filename}: {reason}."
        raise StackError(f"--to {folder}", what, "Name a folder that can be written.") from error
    except ValueError as error:
        what = "no file can hold that name or text."
        raise StackError(f"--to {folder}", what, "Name a folder that can be written.") from error


def _parts(name: str) -> tuple[str, ...] | None:
    """The parts of a path below a folder; None for one that leads anywhere else."""
    parts = name.split("/")
    is_wrong = any(part in ("", ".", "..") for part in parts) or "\0" in name
    return None if is_wrong or PurePosixPath(name).is_absolute() else tuple(parts)


def _write(root: int, parts: tuple[str, ...], text: str) -> None:
    with _opened(root, parts[:-1]) as parent:
        name, beside = parts[-1], f".{parts[-1]}.{secrets.token_hex(4)}.new"
        mode = 0o777 if name == _PROGRAM else 0o666
        descriptor = os.open(beside, _NEW, mode, dir_fd=parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except (OSError, ValueError):
            os.unlink(beside, dir_fd=parent)
            raise


@contextmanager
def _opened(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    """A folder below the root, made where there is none; no link on the way is followed."""
    current = os.dup(root)
    try:
        for part in parts:
            with suppress(FileExistsError):  # opened below, where a link is refused
                os.mkdir(part, dir_fd=current)
            inner = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)
