"""Kernel calls that Python 3.11 has no function for: mounts, namespaces, rooted opens."""

from __future__ import annotations

import ctypes
import os
import signal
from enum import IntFlag
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
# The same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _AT_EMPTY_PATH = 1, 4, 0x1000
_MOUNT_ATTR_IDMAP = 0x100000
_AT_FDCWD = -100
_PR_SET_DUMPABLE = 4
_RESOLVE_IN_ROOT = 0x10
_PR_SET_PDEATHSIG = 1
_MNT_DETACH = 2
_ANCHOR = "/proc"  # any folder that nobody removes


class Namespace(IntFlag):
    """CLONE_NEW… of unshare(2) and setns(2)."""

    TIME = 0x80
    MOUNT = 0x20000
    CGROUP = 0x2000000
    USER = 0x10000000
    UTS = 0x4000000
    IPC = 0x8000000
    PID = 0x20000000
    NET = 0x40000000


class MountFlag(IntFlag):
    """MS_… of mount(2)."""

    NONE = 0
    READ_ONLY = 1
    NO_SETUID = 2
    NO_DEVICES = 4
    NO_EXEC = 8
    REMOUNT = 32
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18
    SHARED = 1 << 20


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _MountAttributes(ctypes.Structure):
    """struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def mount(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    file_system: str | None = None,
    flags: MountFlag = MountFlag.NONE,
    options: str = "",
) -> None:
    """Mount a file system.

    Raises:
        OSError: with the target as its file name.
    """
    _check(
        _LIBC.mount(
            os.fsencode(source),
            os.fsencode(target),
            file_system.encode() if file_system else None,
            ctypes.c_ulong(flags),
            options.encode() if options else None,
        ),
        f"mount of {file_system or source} on {os.fspath(target)}",
    )


def bind(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Make the target show the source."""
    mount(source, target, None, MountFlag.BIND)


def bind_with_owners(
    source: str | os.PathLike[str], target: str | os.PathLike[str], users: int
) -> None:
    """Make the target show the source with its owners as a user namespace maps them (5.12 and later).

    Raises:
        OSError: the file system cannot be shown so.
    """
    what = f"{os.fspath(source)} under other owners"
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    tree = _system_call(_OPEN_TREE, what, _AT_FDCWD, os.fsencode(source), flags)
    try:
        wanted = _MountAttributes(_MOUNT_ATTR_IDMAP, 0, 0, users)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        _system_call(_MOUNT_SETATTR, what, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size)
        place = (_AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
        _system_call(_MOVE_MOUNT, what, tree, b"", *place)
    finally:
        os.close(tree)


def _system_call(number: int, what: str, *arguments: object) -> int:
    result: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    _check(min(result, 0), what)
    return result


def be_readable() -> None:
    """Own the files below /proc that tell of this process, as after no change of users."""
    _check(_LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def make_read_only(target: str | os.PathLike[str]) -> None:
    """Turn an existing bind mount read-only; what else it forbids, it goes on forbidding."""
    kept = MountFlag(os.statvfs(target).f_flag & 0b1110)  # ST_NOSUID, ST_NODEV, ST_NOEXEC are MS_…
    flags = MountFlag.BIND | MountFlag.REMOUNT | MountFlag.READ_ONLY
    mount("none", target, None, flags | kept)


def detach(target: str | os.PathLike[str]) -> None:
    """Unmount now, for everyone who has no file of it open."""
    _check(_LIBC.umount2(os.fsencode(target), _MNT_DETACH), f"umount of {os.fspath(target)}")


def keep_mounts_to_ourselves() -> None:
    """Stop mounts of this namespace from showing in the one that it was copied from.

    Where `/` is a plain folder (chroot) it becomes a mount point: pivot_root(2) wants one.
    """
    mount_points = (
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )
    if "/" in mount_points:
        mount("none", "/", None, MountFlag.RECURSIVE | MountFlag.PRIVATE)
    else:
        _make_root_a_mount_point()


def share_mounts_with_children() -> None:
    """Show later mounts to namespaces copied from this one, as systemd's credentials need it."""
    mount("none", "/", None, MountFlag.RECURSIVE | MountFlag.SHARED)


def unshare(namespaces: Namespace) -> None:
    """Give this process new namespaces (PID and TIME: to its next children)."""
    _check(_LIBC.unshare(ctypes.c_int(namespaces)), f"unshare of {namespaces!r}")


def enter(pidfd: int, namespaces: Namespace) -> None:
    """Move into namespaces of the process behind `pidfd`."""
    _check(_LIBC.setns(pidfd, ctypes.c_int(namespaces)), f"setns of {namespaces!r}")


def change_root(new_root: Path) -> None:
    """Make a mount point the root and leave nothing of the old root behind."""
    os.chdir(new_root)
    _check(_LIBC.pivot_root(b".", b"."), f"pivot_root to {new_root}")
    detach(".")
    os.chdir("/")


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def open_in_root(root: str | os.PathLike[str], path: str, flags: int, mode: int) -> int:
    """Open `path` as a process with that root would, by openat2(2).

    Absolute symbolic links stay inside the root.
    """
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE_IN_ROOT)
    try:
        descriptor: int = _LIBC.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root_fd),
            os.fsencode(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
    finally:
        os.close(root_fd)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return descriptor


def _make_root_a_mount_point() -> None:
    inside = os.open("/", os.O_PATH | os.O_DIRECTORY)
    os.chroot(_ANCHOR)  # to be outside of our root, from where `..` leads up to the real one
    os.fchdir(inside)
    above = os.stat("..")
    while not os.path.samestat(above, os.stat(".")):
        os.chdir("..")
        above = os.stat("..")
    mount("none", ".", None, MountFlag.RECURSIVE | MountFlag.PRIVATE)
    os.fchdir(inside)
    os.chroot(".")
    os.close(inside)
    mount("/", _ANCHOR, None, MountFlag.BIND | MountFlag.RECURSIVE)
    os.chroot(_ANCHOR)
    os.chdir("/")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({what})")
