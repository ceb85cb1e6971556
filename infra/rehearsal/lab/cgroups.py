"""Control groups of a lab, through a private mount that no one else sees."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from infra.rehearsal.lab import linux
from infra.rehearsal.lab.errors import LabError

PREFIX = "moe-lab-"
_REMOVAL_LIMIT_S = 5.0


def open_root(mount_point: Path) -> int:
    """A descriptor of the cgroup v2 root; the mount itself is gone again at once.

    Works wherever the machine mounts it (alone, beside v1, or not at all). The caller has a mount
    namespace of its own.

    Raises:
        LabError: this kernel has no cgroup v2.
    """
    try:
        linux.mount("cgroup2", mount_point, "cgroup2")
    except OSError as error:
        raise LabError(
            "cgroup v2",
            f"cannot be mounted: {error.strerror}.",
            "Use a kernel with CONFIG_CGROUPS (4.5 or later), or a container with CAP_SYS_ADMIN.",
        ) from error
    descriptor = os.open(mount_point, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC)
    linux.detach(mount_point)
    return descriptor


def make(parent: int, name: str) -> int:
    """Make a control group and return a descriptor of its folder."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC, dir_fd=parent)


def delegate(group: int, user: int) -> None:
    """Let a user have groups below one, and move processes between them (cgroups(7), delegation)."""
    for name in (".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
        os.chown(name, user, user, dir_fd=group)


def write(group: int, file_name: str, text: str) -> None:
    """Write one of a group's control files."""
    descriptor = os.open(file_name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=group)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def remove(parent: int, name: str) -> None:
    """Remove a group and all below it, whose processes have been killed.

    Raises:
        OSError: a process is still in it after some seconds.
    """
    deadline = time.monotonic() + _REMOVAL_LIMIT_S
    while True:
        try:
            _remove_once(parent, name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _remove_once(parent: int, name: str) -> None:
    for _, folders, _, descriptor in os.fwalk(name, topdown=False, dir_fd=parent):
        for folder in folders:
            os.rmdir(folder, dir_fd=descriptor)
    os.rmdir(name, dir_fd=parent)
