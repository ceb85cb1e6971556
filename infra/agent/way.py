"""Ways to folders: a path is walked from the top, one name at a time, and no link is followed that root did not make.

A link is followed only where root made it and nobody else could have put it there (`/models -> /mnt/nvme`). What
NFS does with root's name (root_squash) is no matter of ours: what lies there is then not root's, and not believed.
"""

import contextlib
import errno
import os
import stat
from typing import Iterator, List, NamedTuple, Optional, Tuple

from .host import Refused

MAX_LINKS = 40
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Step(NamedTuple):
    """One folder on a way: its handle, what it is, and whether nobody but root could lead the way elsewhere."""

    handle: int
    status: os.stat_result
    is_settled: bool


def go(
    steps: List[Step], path: str, make: Optional[int], *, file: bool = False
) -> Tuple[Step, str]:
    """Go a way, name by name; the folder where it ends, and the name in it where it ends at a file."""
    waiting, num_links = _split(path), 0
    try:
        while waiting:
            name, here = waiting.pop(), steps[-1]
            if name == "..":
                _leave(steps)
                continue
            found = status_of(here.handle, name)
            if found is not None and stat.S_ISLNK(found.st_mode):
                num_links += 1
                target = _follow(here, name, found, path)
                if num_links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    _close(steps)
                    steps.append(top())
                waiting += _split(target)
                continue
            if file and not waiting:
                return steps.pop(), name
            if found is None and make is not None:
                _make(here.handle, name, make)
            steps.append(_enter(here, name))
        if file:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return steps.pop(), ""
    finally:
        _close(steps)


def top() -> Step:
    """Where every way begins."""
    handle = os.open("/", DIRECTORY)
    return Step(handle, os.fstat(handle), is_settled=True)


def _enter(here: Step, name: str) -> Step:
    handle = os.open(name, DIRECTORY, dir_fd=here.handle)
    status = os.fstat(handle)
    return Step(handle, status, here.is_settled and is_settled(here.status, status))


def _leave(steps: List[Step]) -> None:
    """Go up; above where the way began nothing is known of who could lead it elsewhere."""
    last = steps.pop()
    if not steps:
        handle = os.open("..", DIRECTORY, dir_fd=last.handle)
        steps.append(Step(handle, os.fstat(handle), is_settled=False))
    os.close(last.handle)


def _close(steps: List[Step]) -> None:
    while steps:
        os.close(steps.pop().handle)


def _follow(here: Step, name: str, found: os.stat_result, path: str) -> str:
    """Where a link leads that nobody but root could have put there, nor brought there with a folder above it."""
    is_roots = is_ours(found.st_uid) and is_settled(here.status, found)
    if is_roots and here.is_settled:
        return os.readlink(name, dir_fd=here.handle)
    who = "uid {}".format(found.st_uid)
    if is_roots:
        who = "whoever may write in a folder above it"
    elif is_ours(found.st_uid):
        who = "whoever may write in the folder that it lies in (uid {}, mode {:o})".format(
            here.status.st_uid, stat.S_IMODE(here.status.st_mode)
        )
    raise Refused(
        "{}: {} is a link, and {} may lead it anywhere: remove it, or have root own it and the folder that it "
        "lies in (chown root; chmod go-w)".format(path, name, who)
    )


def _make(above: int, name: str, mode: int) -> None:
    """Make a folder; another agent may be at it, too."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=above)
        handle = os.open(name, DIRECTORY, dir_fd=above)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


def status_of(above: int, name: str) -> Optional[os.stat_result]:
    """What lies in a folder under a name, itself if it is a link; None for nothing."""
    try:
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _split(path: str) -> List[str]:
    """The names of a path, the last one first."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


def is_ours(uid: int) -> bool:
    """Whether a user is root, or who runs this program."""
    return uid in (0, os.geteuid())


def is_open_to_others(status: os.stat_result) -> bool:
    """Whether others than the owner may write; root's own group is root."""
    is_of_group = bool(status.st_mode & stat.S_IWGRP) and status.st_gid != 0
    return is_of_group or bool(status.st_mode & stat.S_IWOTH)


def is_own(status: os.stat_result) -> bool:
    """Whether nobody but root may write to something."""
    return is_ours(status.st_uid) and not is_open_to_others(status)


def is_settled(above: os.stat_result, entry: os.stat_result) -> bool:
    """Whether nobody but root could put something else into the place of what lies in a folder."""
    is_sticky = bool(above.st_mode & stat.S_ISVTX) and is_ours(entry.st_uid)
    return is_ours(above.st_uid) and (is_sticky or not is_open_to_others(above))


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Have an error say the whole path instead of the last name of it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        if error.errno == errno.ELOOP:
            what = "{} is a link that was put there meanwhile, or leads in a circle: remove it"
            raise Refused(what.format(path)) from error
        raise
