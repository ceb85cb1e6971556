"""The few system calls that the standard library lacks on Python 3.9: mount, unshare, pivot_root."""

from __future__ import annotations

import ctypes
import os

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWNET = 0x40000000
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

# Flags of statvfs(3) that a read-only remount must repeat, with their mount(2) counterparts. Inside a user
# namespace the kernel refuses a remount that drops one of them.
LOCKED_FLAGS = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))

_LIBC = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process into new namespaces.

    Raises:
        OSError: the kernel says no, as it does without privileges.
    """
    _check(_LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system.

    Raises:
        OSError: with the target as its file name.
    """
    result = _LIBC.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(result, target)


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Bind a file or folder, with what is mounted below it, over an existing target of the same kind.

    Raises:
        OSError: with the target as its file name.
    """
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        make_read_only(target)


def make_read_only(target: str) -> None:
    """Make a mount read-only and keep its other flags."""
    present = os.statvfs(target).f_flag
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY
    for statvfs_flag, mount_flag in LOCKED_FLAGS:
        if present & statvfs_flag:
            flags |= mount_flag
    mount("", target, "", flags)


def make_mounts_private() -> None:
    """Keep later mounts of this namespace from its parent."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def pivot_into(folder: str) -> None:
    """Make a mounted folder the root of this mount namespace and let go of the old root."""
    os.chdir(folder)
    _check(_LIBC.pivot_root(b".", b"."), folder)
    _check(_LIBC.umount2(b".", MNT_DETACH), folder)
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Name the host of this UTS namespace."""
    encoded = name.encode()
    _check(_LIBC.sethostname(encoded, ctypes.c_size_t(len(encoded))), name)


def raise_loopback() -> None:
    """Bring the loopback interface of a new network namespace up."""
    import _socket  # noqa: PLC0415  only containers without the host network need them
    import fcntl  # noqa: PLC0415  only containers without the host network need them

    interface_up = b"lo".ljust(16, b"\0") + (0x1 | 0x40).to_bytes(2, "little") + bytes(22)
    channel = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(channel, 0x8914, interface_up)
    channel.close()


def keep_capabilities(numbers: set[int]) -> None:
    """Keep these capabilities alone for the program that this process becomes; until then it has what it has."""
    number = 0
    while _LIBC.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        if number not in numbers:
            _check(_LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "capabilities")
        number += 1


def gain_nothing() -> None:
    """Keep this process and its children from gaining rights by a program's own."""
    _check(_LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def _check(result: int, subject: str) -> None:
    """Turn a failed call into the OSError of its errno."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
