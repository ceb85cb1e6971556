"""Folders that others may write in, too: what is read, walked and removed there stays below them.

Checkpoints lie in such folders, and images and probes; `folders` has what a check of tuning needs of them.
"""

import contextlib
import errno
import os
import stat
from typing import Iterator, Optional, Tuple

from .folders import REGULAR, Folder
from .host import Refused
from .way import (
    DIRECTORY,
    Step,
    go,
    is_open_to_others,
    is_own,
    is_settled,
    naming,
    status_of,
    top,
)

# Folders within each other that are looked into; nobody's checkpoint has more, and handles are few.
MAX_DEPTH = 64
TRIES = 5
# File systems that have no files without a name.
WITHOUT_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
NO_FOLDER = (errno.ENOTDIR, errno.ENOENT, errno.ELOOP)
SWAPPED = "{} was swapped while it was opened; somebody else than root may write in {}: see who (ls -ld {})"


class Tree(Folder):
    """A folder that is held open, with all that lies below it."""

    def __enter__(self) -> "Tree":  # noqa: PYI034 - `Self` is Python 3.11's
        """Itself."""
        return self

    @property
    def is_roots(self) -> bool:
        """Whether nobody but root could have put anything into it, or another folder into its place."""
        return self.step.is_settled and is_own(self.step.status)

    def folder(self, path: str, make: Optional[int] = None) -> "Tree":
        """A folder below it.

        Args:
            path: relative, with slashes.
            make: the mode of folders that are not there; None where they must be.

        Raises:
            Refused: a link leads there that others than root could have put there.
            OSError: it cannot be opened.
        """
        step = self.step._replace(handle=os.dup(self.handle))
        with naming(self.at(path)):
            return Tree(go([step], path, make)[0], self.at(path))

    def own_folder(self, name: str) -> Tuple["Tree", bool]:
        """A folder in it that we alone write, and whether something else had to be removed for it.

        Raises:
            Refused: somebody puts something else there again and again.
            OSError: it cannot be made.
        """
        was_foreign = False
        for _ in range(TRIES):
            with contextlib.suppress(FileExistsError), naming(self.at(name)):
                os.mkdir(name, 0o700, dir_fd=self.handle)
            try:
                found = self.plain_folder(name)
            except OSError as error:
                if error.errno not in NO_FOLDER:
                    raise
            else:
                status = found.step.status
                if status.st_uid == self._own_uid() and not is_open_to_others(status):
                    return found, was_foreign
                found.__exit__()
            was_foreign = True
            self.remove(name)
        raise Refused(SWAPPED.format(self.at(name), self.path, self.path))

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
        """A regular file below it, opened; links that root made are followed to read, none to write.

        Raises:
            Refused: a link leads there that others could have put there, or the file has a name elsewhere, too.
            OSError: it cannot be opened, or is no regular file.
        """
        above, shown = os.path.dirname(path), self.at(path)
        with contextlib.ExitStack() as held, naming(shown):
            name, folder = os.path.basename(path), self.handle
            if flags & os.O_ACCMODE == os.O_RDONLY:
                step, name = go([self.step._replace(handle=os.dup(folder))], path, None, file=True)
                folder = held.enter_context(Tree(step, shown)).handle
            elif above:
                folder = held.enter_context(self.folder(above)).handle
            handle = os.open(name, flags | REGULAR, mode, dir_fd=folder)
            try:
                _refuse_odd(os.fstat(handle), shown, writes=flags & os.O_ACCMODE != os.O_RDONLY)
            except BaseException:
                os.close(handle)
                raise
        return handle

    def status(self, path: str) -> os.stat_result:
        """What a path below it is, links followed as `open` follows them.

        Raises:
            Refused: a link leads there that others could have put there.
            OSError: nothing is there.
        """
        with naming(self.at(path)):
            step, name = go([self.step._replace(handle=os.dup(self.handle))], path, None, file=True)
            with Tree(step, self.at(path)) as folder:
                return os.stat(name, dir_fd=folder.handle, follow_symlinks=False)

    def read(self, path: str) -> bytes:
        """The whole content of a regular file below it; see `open`."""
        with os.fdopen(self.open(path), "rb") as stream:
            return stream.read()

    def names(self) -> Tuple[str, ...]:
        """What lies in it, sorted."""
        return tuple(sorted(os.listdir(self.handle)))

    def has(self, name: str) -> bool:
        """Whether anything lies there, a link too."""
        return status_of(self.handle, name) is not None

    def rename(self, name: str, into: "Tree", new: str) -> None:
        """Move something of it into a folder of the same file system, in the place of what lies there."""
        with naming(into.at(new)):
            os.rename(name, new, src_dir_fd=self.handle, dst_dir_fd=into.handle)

    def remove(self, name: str) -> None:
        """Remove a file, a link or a folder with all that is in it; nothing is done where it is gone."""
        with naming(self.at(name)):
            _remove_tree(self.handle, name)

    def nameless(self) -> int:
        """A file in it that nobody else sees, and that is gone when it is closed, also by a kill."""
        try:
            return os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600, dir_fd=self.handle)
        except OSError as error:
            if error.errno not in WITHOUT_NAMELESS:
                raise
        name = ".moe-infra-{}".format(os.urandom(8).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | REGULAR
        handle = os.open(name, flags, 0o600, dir_fd=self.handle)
        os.unlink(name, dir_fd=self.handle)
        return handle

    def is_at(self, above: "Tree", name: str) -> bool:
        """Whether it is what lies there now."""
        found = status_of(above.handle, name)
        return found is not None and os.path.samestat(found, os.fstat(self.handle))

    def plain_folder(self, name: str) -> "Tree":
        """A folder in it that is no link."""
        handle = os.open(name, DIRECTORY, dir_fd=self.handle)
        status = os.fstat(handle)
        settled = self.step.is_settled and is_settled(self.step.status, status)
        return Tree(Step(handle, status, settled), self.at(name))

    def _own_uid(self) -> int:
        """Whose the files are that we make here; a mount may give them to somebody else than root."""
        handle = self.nameless()
        try:
            return os.fstat(handle).st_uid
        finally:
            os.close(handle)


def open_tree(path: str, make: Optional[int] = None) -> Tree:
    """The tree at an absolute path; see `folders.open_folder`."""
    with naming(path):
        return Tree(go([top()], path, make)[0], path)


def open_above(path: str, make: Optional[int] = None) -> Tuple[Tree, str]:
    """The tree that something lies in, and its name there; see `open_tree`."""
    above, name = os.path.split(path.rstrip("/"))
    return open_tree(above, make), name


def open_file(path: str, flags: int = os.O_RDONLY) -> int:
    """The regular file at an absolute path, opened; see `Tree.open`."""
    folder, name = open_above(path)
    with folder:
        return folder.open(name, flags)


def is_believable(status: os.stat_result) -> bool:
    """Whether nobody but root could have written a file that lies in a folder of root's."""
    return stat.S_ISREG(status.st_mode) and is_own(status)


def walk(folder: Tree, depth: int = 0) -> Iterator[Tuple[str, os.stat_result]]:
    """Every file below a folder with its relative path; no link is followed, and no folder far below."""
    for name in folder.names():
        found = status_of(folder.handle, name)
        if found is not None and stat.S_ISDIR(found.st_mode):
            if depth == MAX_DEPTH:
                continue
            with contextlib.suppress(OSError), folder.plain_folder(name) as below:
                for path, status in walk(below, depth + 1):
                    yield os.path.join(name, path), status
        elif found is not None:
            yield name, found


def _remove_tree(above: int, name: str, depth: int = 0) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing elsewhere, whatever is swapped meanwhile.

    Args:
        above: the folder that it lies in.
        name: its name there; nothing is done where it is gone.
        depth: how far below the first one it lies.
    """
    if depth > MAX_DEPTH:
        raise OSError(
            errno.ENAMETOOLONG, "more than {} folders within each other".format(MAX_DEPTH)
        )
    for _ in range(TRIES):
        try:
            os.unlink(name, dir_fd=above)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            with contextlib.suppress(NotADirectoryError, FileNotFoundError):  # it was swapped
                handle = os.open(name, DIRECTORY, dir_fd=above)
                try:
                    for below in os.listdir(handle):
                        _remove_tree(handle, below, depth + 1)
                finally:
                    os.close(handle)
                os.rmdir(name, dir_fd=above)
                return
        else:
            return
    raise OSError(errno.EBUSY, "something else is put there again and again")


def _refuse_odd(found: os.stat_result, shown: str, *, writes: bool) -> None:
    """Refuse what is no file of its own: a pipe, a device, one more name of a file that lies elsewhere."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "no regular file", shown)
    if writes and found.st_nlink > 1:
        what = "{} has another name, too, so that writing to it would write elsewhere: remove it"
        raise Refused(what.format(shown))
