"""Files of the operator's machine, written whole or not at all; nobody else's change is lost meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from infra.errors import InfraError, PrerequisiteError, StackError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MAKE_ROOM = "Make room on this machine, and type it again."
NAME_ANOTHER = "Name a file that you may write."
IN_A_FOLDER = "Name a file in a folder that exists."
# A `fab` holds the lock for as long as it takes to read and to write one file.
LOCK_S = 10.0
_LOOK_EVERY_S = 0.02
# Of file systems that have no such locks on a folder: some NFS.
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def write_whole(path: Path, content: str, *, option: str = "", fix: str = NAME_ANOTHER) -> None:
    """Write a file beside its place and rename it there; see `writing_whole`."""
    with writing_whole(path, option=option, fix=fix) as file:
        file.write(content.encode())


@contextlib.contextmanager
def writing_whole(
    path: Path, *, option: str = "", fix: str = NAME_ANOTHER, mode: int | None = None
) -> Iterator[BinaryIO]:
    """A file that stands in the place of another once it is written, and not before.

    A link stays one, and its file is replaced; a file keeps its mode and its owner. A device or a pipe is written to.

    Args:
        path: where it is to stand.
        option: that named the path, for messages.
        fix: what a person can do where it cannot be written.
        mode: of the file, whatever it was before; None for what it was, or what the umask leaves.

    Raises:
        StackError: it cannot be written.
        PrerequisiteError: there is no room.
    """
    try:
        if _is_written_in_place(path):
            with path.open("wb") as file:
                yield file
            return
        place = Path(os.path.realpath(path))
        new = _beside(place)
        try:
            with new.open("xb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
                _take_over(file, place, keeps_mode=mode is None)
            new.replace(place)
        finally:
            _forget(new)
    except OSError as error:
        raise unwritten(error, path, option, fix) from error


@contextlib.contextmanager
def kept_from_others(path: Path) -> Iterator[None]:
    """No other `fab` changes the file: it is read again, and written, while this holds.

    The lock is on the folder, so that none is left over, and the file can be replaced. Where a file system has no
    such locks there is none.

    Raises:
        StackError: there is no such folder.
        PrerequisiteError: somebody else holds it.
    """
    place = Path(os.path.realpath(path))
    try:
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unwritten(error, path, "", NAME_ANOTHER) from error
    try:
        _lock(folder, place.parent)
        yield
    finally:
        os.close(folder)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file that others add to, too (OpenSSH to known_hosts): the whole line, or nothing.

    Args:
        path: the file, which need not be there; its folder is made, for its owner alone.
        line: without its newline.

    Raises:
        StackError: it cannot be written.
        PrerequisiteError: there is no room.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(file, path)
            size = os.fstat(file).st_size
            begins = size == 0 or os.pread(file, 1, size - 1) == b"\n"
            content = f"{'' if begins else os.linesep}{line}\n".encode()
            if (num_written := _written(file, content)) < len(content):
                if os.fstat(file).st_size == size + num_written:
                    os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as error:
        raise unwritten(error, path, "", NAME_ANOTHER) from error


def unwritten(error: OSError, path: Path, option: str, fix: str) -> InfraError:
    """The failure to write a file: no room on this machine, or a path that is wrong."""
    where = f"{option} {path}".strip()
    if error.errno in DISK_FULL:
        return PrerequisiteError(where, f"{error.strerror}.", MAKE_ROOM)
    return StackError(where, f"The file cannot be written: {error.strerror}.", fix)


def _is_written_in_place(path: Path) -> bool:
    """Whether nothing can be renamed over it: a device, a pipe, or what a descriptor of this process is open on."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) or path.parts[:2] in (
        ("/", "dev"),
        ("/", "proc"),
    )


def _beside(place: Path) -> Path:
    """A name of which there is no second one, in the same folder."""
    return place.with_name(f".{place.name[:100]}.{secrets.token_hex(6)}.new")


def _forget(new: Path) -> None:
    """Remove what was not renamed, where it came to be at all."""
    with contextlib.suppress(OSError):
        new.unlink()


def _take_over(file: BinaryIO, place: Path, *, keeps_mode: bool = True) -> None:
    """Give a file the mode and the owner of the one that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        before = place.stat()
        if keeps_mode:
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        with contextlib.suppress(PermissionError):  # only root gives files away
            os.fchown(file.fileno(), before.st_uid, before.st_gid)


def _written(file: int, content: bytes) -> int:
    """How many bytes of a line found room."""
    try:
        return os.write(file, content)
    except OSError as error:
        if error.errno in DISK_FULL:
            return 0
        raise


def _lock(descriptor: int, path: Path) -> None:
    """Wait until nobody else holds it, for so long."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                what = f"Another process holds its lock for {LOCK_S:g} s already."
                fix = f"`fuser -v {path}` says which; type it again when that has ended."
                raise PrerequisiteError(str(path), what, fix) from error
            time.sleep(_LOOK_EVERY_S)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            raise
        else:
            return
