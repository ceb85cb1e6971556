"""Writes files below one folder, all or none: no name and no link leads out of it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from infra.errors import StackError
from infra.whole_file import unwritten

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = (errno.ELOOP, errno.ENOTDIR)
_PROGRAM = "launch"
_FIX = "Name a folder that can be written."


def write_below(folder: Path, files: Mapping[str, str]) -> None:
    """Write every file beside its place below the folder, then rename them all there.

    They can be made again, so they are not forced to the disk, which would take longer than all else.

    Args:
        folder: made where there is none; it may be a link itself.
        files: text by path below it.

    Raises:
        StackError: a path leads out of the folder, or cannot be written. Then nothing is written.
        PrerequisiteError: there is no room. Then nothing is written.
    """
    for name in files:
        if _parts(name) is None:
            what = f"{name!r} is no path below it."
            raise StackError(f"--to {folder}", what, "Report this: no plan should come so far.")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    name = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        writing = _Writing(root)
        try:
            for name, text in files.items():
                writing.write_beside(_parts(name) or (), text)
            for name in files:
                writing.put_in_place(_parts(name) or ())
        except BaseException:
            writing.forget()
            raise
        finally:
            os.close(root)
    except (OSError, ValueError) as error:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise _failure(error, folder, name) from error


@dataclass(slots=True)
class _Writing:
    """Files on their way below a folder.

    Args:
        root: the folder's descriptor.
        beside: the name under which each file waits for its place.
        made: folders that were not there, in the order in which they were made.
    """

    root: int
    beside: dict[tuple[str, ...], str] = field(default_factory=dict)
    made: list[tuple[str, ...]] = field(default_factory=list)

    def write_beside(self, parts: tuple[str, ...], text: str) -> None:
        """Write a file under a name of which there is no second one, in its own folder."""
        self._make_folders(parts[:-1])
        with _opened(self.root, parts[:-1]) as parent:
            _refuse_folder(parent, parts[-1])
            name = f".{parts[-1]}.{secrets.token_hex(4)}.new"
            mode = 0o777 if parts[-1] == _PROGRAM else 0o666
            descriptor = os.open(name, _NEW, mode, dir_fd=parent)
            self.beside[parts] = name
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)

    def put_in_place(self, parts: tuple[str, ...]) -> None:
        """Rename a file that was written beside its place."""
        with _opened(self.root, parts[:-1]) as parent:
            os.rename(self.beside[parts], parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
            del self.beside[parts]

    def forget(self) -> None:
        """Remove what is not in its place, and folders that hold nothing."""
        for parts, name in self.beside.items():
            with suppress(OSError), _opened(self.root, parts[:-1]) as parent:
                os.unlink(name, dir_fd=parent)
        for parts in reversed(self.made):
            with suppress(OSError), _opened(self.root, parts[:-1]) as parent:
                os.rmdir(parts[-1], dir_fd=parent)

    def _make_folders(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            with suppress(FileExistsError), _opened(self.root, parts[: depth - 1]) as parent:
                os.mkdir(parts[depth - 1], dir_fd=parent)
                self.made.append(parts[:depth])


def _refuse_folder(parent: int, name: str) -> None:
    """Find before the first rename what would end the renames half way: a folder in a file's place.

    Raises:
        OSError: there is one.
    """
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


def _failure(error: OSError | ValueError, folder: Path, name: str) -> Exception:
    if isinstance(error, ValueError):
        return StackError(f"--to {folder}", f"{name}: no file can hold that name or text.", _FIX)
    if error.errno in _LINK:
        return StackError(f"--to {folder}", f"{error.filename}: it is a link, or no folder.", _FIX)
    return unwritten(error, folder / name, "--to", _FIX)


def _parts(name: str) -> tuple[str, ...] | None:
    """The parts of a path below a folder; None for one that leads anywhere else."""
    parts = name.split("/")
    is_wrong = any(part in ("", ".", "..") for part in parts) or "\0" in name
    return None if is_wrong or PurePosixPath(name).is_absolute() else tuple(parts)


@contextmanager
def _opened(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    """A folder below the root; no link on the way is followed."""
    current = os.dup(root)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)
