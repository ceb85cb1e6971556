"""Users of hosts that are nobody on the machine: a user namespace, and the machine's files under its owners.

What a foreign plan runs as root on such a host has no more rights outside of it than a stranger's process.
Sources: user_namespaces(7), mount_setattr(2) of man-pages 6.9; checked 2026-11-26.
"""

from __future__ import annotations

import os
from pathlib import Path

from infra.rehearsal.lab import linux
from infra.rehearsal.lab.errors import LabError

FIRST = 1_879_048_192  # above every range that /etc/subuid and systemd-nspawn (up to 1879048191) give away
COUNT = 65_536


def open_range() -> int:
    """A descriptor of a user namespace whose root is user `FIRST` of the machine.

    Raises:
        LabError: this kernel makes none.
    """
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(done_write)
            linux.unshare(linux.Namespace.USER)
            os.write(ready_write, b"x")
            os.read(done_read, 1)
        finally:
            os._exit(0)
    os.close(ready_write)
    os.close(done_read)
    try:
        if not os.read(ready_read, 1):
            raise _closed("makes no user namespace")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {FIRST} {COUNT}\n")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.close(done_write)
        os.waitpid(child, 0)


def show_with_owners(source: Path, target: Path, users: int) -> None:
    """Show a file system of the machine with its owners moved into a range: what is root's is the range's root's.

    Raises:
        LabError: the file system, or the kernel, cannot.
    """
    try:
        linux.bind_with_owners(source, target, users)
    except OSError as error:
        raise _closed(f"shows {source} under no other owners ({error.strerror})") from error


def give_away(folder: Path) -> None:
    """Move the owners of a folder, and of all below it, into the range."""
    for parent, _, names, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (".", *names):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            user, group = found.st_uid, found.st_gid
            mode = found.st_mode
            os.chown(name, user + FIRST, group + FIRST, dir_fd=descriptor, follow_symlinks=False)
            if mode & 0o6000:  # a new owner takes these bits away
                os.chmod(Path(parent) / name, mode & 0o7777)


def enter_range(users: int) -> None:
    """Become root of a range, and nobody outside of it."""
    linux.enter(users, linux.Namespace.USER)
    become_its_root()


def become_its_root() -> None:
    """Be the root of the user namespace that this process has just moved into."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    linux.be_readable()


def _closed(what: str) -> LabError:
    return LabError(
        "this machine",
        f"{what}, and a plan from elsewhere is rehearsed by users that are nobody here.",
        "Use a kernel of 5.19 or later on ext4, xfs or btrfs; check and render --plan need no hosts.",
    )
