"""Folders that are held open: whatever is done below a path of somebody else's choice is done relative to them.

The agent is root, and a folder that it works in may be one that others write. They may put a link, a pipe, another
folder or another name of a file of root's where the agent expects its own. What is made, renamed or removed in a
folder that is held cannot lie elsewhere, whatever is swapped meanwhile; `way` says how a folder is reached, and
`trees` works in what lies below.
"""

import contextlib
import errno
import os
import stat
from typing import Optional, Tuple

from .way import Step, go, is_own, naming, top

FOLDER_MODE = 0o755
BESIDE = ".moe-infra-new"
# A pipe that somebody put there must not make whoever opens it wait.
REGULAR = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """A folder that is held open.

    Args:
        step: how it was reached.
        path: how it was asked for, for messages.
    """

    def __init__(self, step: Step, path: str) -> None:
        """Take the handle over."""
        self.handle = step.handle
        self.path = path
        self.step = step

    def __enter__(self) -> "Folder":  # noqa: PYI034 - `Self` is Python 3.11's
        """Itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Hold it no more."""
        os.close(self.handle)

    def at(self, name: str) -> str:
        """The path of something in it, for messages."""
        return os.path.join(self.path, name)

    def replace(
        self, name: str, content: bytes, mode: int, owner: Optional[Tuple[int, int]] = None
    ) -> None:
        """Write a file beside its place, force it to disk, and rename it into place."""
        if not self._is_laid_out(name + BESIDE, content, mode):
            self.lay_out(name, content, mode, owner)
        with naming(self.at(name)):
            os.rename(name + BESIDE, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def lay_out(
        self, name: str, content: bytes, mode: int, owner: Optional[Tuple[int, int]] = None
    ) -> None:
        """Write a file beside its place; `replace` then only has to rename it."""
        self.clear(name)
        with naming(self.at(name)):  # a failed write does not say of what
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | REGULAR
                handle = os.open(name + BESIDE, flags, 0o600, dir_fd=self.handle)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    if owner is not None:
                        os.fchown(stream.fileno(), owner[0], owner[1])
                    os.fchmod(stream.fileno(), mode)
                    os.fsync(stream.fileno())
            except BaseException:
                self.clear(name)
                raise

    def clear(self, name: str) -> None:
        """Remove what was laid out for a file, or what a write that was killed has left beside it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + BESIDE, dir_fd=self.handle)

    def link(self, name: str, target: str) -> None:
        """Put a link there."""
        self.clear(name)
        with naming(self.at(name)):
            os.symlink(target, name + BESIDE, dir_fd=self.handle)
            os.rename(name + BESIDE, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def unlink(self, name: str) -> None:
        """Remove a file or a link."""
        with naming(self.at(name)):
            os.unlink(name, dir_fd=self.handle)

    def sync(self) -> None:
        """Force its names to disk, so that a power cut does not undo a rename; not every file system can."""
        try:
            os.fsync(self.handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def _is_laid_out(self, name: str, content: bytes, mode: int) -> bool:
        """Whether the same content lies there already, written by `lay_out`."""
        try:
            handle = os.open(name, os.O_RDONLY | REGULAR, dir_fd=self.handle)
            try:
                found = os.fstat(handle)
                if not (stat.S_ISREG(found.st_mode) and is_own(found)):
                    return False
                with os.fdopen(handle, "rb", closefd=False) as stream:
                    return stat.S_IMODE(found.st_mode) == mode and stream.read() == content
            finally:
                os.close(handle)
        except OSError:
            return False


def open_folder(path: str, make: Optional[int] = None) -> Folder:
    """The folder at an absolute path.

    Args:
        path: where it lies.
        make: the mode of folders that are not there, whatever the umask of the login is; None where they must be.

    Raises:
        Refused: a link leads there that others than root could have put there.
        OSError: it is not there, or cannot be opened.
    """
    with naming(path):
        return Folder(go([top()], path, make)[0], path)


def open_above(path: str, make: Optional[int] = None) -> Tuple[Folder, str]:
    """The folder that something lies in, and its name there; see `open_folder`."""
    above, name = os.path.split(path.rstrip("/"))
    return open_folder(above, make), name
