"""From nothing to a running systemd: the namespaces, mounts and first program of one host."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.rehearsal.lab import linux, network, user_range
from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost
from infra.rehearsal.lab.knob_tree import LIVE_FILES, LONE, MOUNT_POINTS, lone_files
from infra.rehearsal.lab.layers import VOLATILE_FOLDERS
from infra.rehearsal.lab.linux import MountFlag, Namespace

HOST_NAMESPACES = (
    Namespace.MOUNT
    | Namespace.UTS
    | Namespace.IPC
    | Namespace.NET
    | Namespace.PID
    | Namespace.CGROUP
    | Namespace.TIME
)
SYSTEMD = "/lib/systemd/systemd"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "TERM": "dumb",
    "container": "moe-lab",  # systemd then leaves hardware, clock and console alone
}
CONFIGURED = b"c"
"""What a host sends when its network end is up; then either silence (systemd runs) or an error."""

_NO_PRIVILEGES = MountFlag.NO_SETUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC
_LENT = "lent"
COVERS = "run/moe-lab-covers"
"""Folder of the files that lie over the kernel's own."""

NodeMaker = Callable[[Path, Path], None]
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_TEMPORARY = {  # folder → mode and size of the tmpfs on it
    "run": "mode=755,size=64m",
    "tmp": "mode=1777,size=256m",
    "dev/shm": "mode=1777,size=64g",  # a limit: nothing is taken before it is written
}
_READ_ONLY_PROC = ("irq", "bus", "sys/abi", "sys/debug", "sys/dev", "sys/user", "fs")
_MASKED_PROC = ("kcore", "kmsg", "sysrq-trigger", "keys", "timer_list")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootOrder:
    """All that a host's first process needs.

    Args:
        host: what to build.
        root: where the host's overlay is mounted.
        knobs: the host's folder in the knob file system.
        cgroup: descriptor of the host's cgroup folder.
        console: file that takes what PID 1 prints.
        users: descriptor of the user namespace whose root the host's is; None for the machine's own.
    """

    host: LabHost
    root: Path
    knobs: Path
    cgroup: int
    console: Path
    users: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstProcess:
    """A host's PID 1 before it runs systemd.

    Args:
        pid: in the lab's numbering.
        go: write end; one byte says that the network cable is plugged in, EOF that all is off.
        report: read end; `CONFIGURED`, then EOF for success or an error's text.
    """

    pid: int
    go: int
    report: int


def fork_host(order: BootOrder) -> FirstProcess:
    """Start a host's PID 1, up to where it waits for its network cable.

    Raises:
        OSError: the process could not be made.
    """
    pid_read, pid_write = os.pipe()
    go_read, go_write = os.pipe()
    report_read, report_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            os.close(pid_read)
            os.close(go_write)
            os.close(report_read)
            _become_host(order, pid_write, go_read, report_write)
        except BaseException as error:  # noqa: BLE001 - a fork must not return into the caller
            os.write(report_write, f"{error}".encode())
        finally:
            os._exit(1)
    for descriptor in (pid_write, go_read, report_write):
        os.close(descriptor)
    number = os.read(pid_read, 32)
    os.close(pid_read)
    os.waitpid(middle, 0)
    if not number:
        failure = os.read(report_read, 4096).decode()
        os.close(go_write)
        os.close(report_read)
        raise OSError(f"{order.host.name}: {failure}")
    return FirstProcess(pid=int(number), go=go_write, report=report_read)


def _become_host(order: BootOrder, pid_write: int, go_read: int, report_write: int) -> None:
    os.setsid()
    procs = os.open("cgroup.procs", os.O_WRONLY, dir_fd=order.cgroup)
    os.write(procs, b"0")
    os.close(procs)
    console = os.open(order.console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if order.users is not None:
        order = _leave_machine(order, order.users)
    linux.unshare(HOST_NAMESPACES)
    up_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    offsets = f"boottime -{up_s} 0\nmonotonic -{int(time.monotonic())} 0\n"
    Path("/proc/self/timens_offsets").write_text(offsets)
    first = os.fork()
    if first:
        os.write(pid_write, str(first).encode())
        os._exit(0)
    os.close(pid_write)
    _build_root(order)
    if not os.read(go_read, 1):
        os._exit(1)
    network.configure_inside(order.host.address, order.host.aside)
    os.write(report_write, CONFIGURED)
    _run_systemd(order, console)


def _leave_machine(order: BootOrder, users: int) -> BootOrder:
    """Become the root of a range of users; what it could not reach by its path is shown beside the host's root first.

    Returns:
        The order, with every place as it is called from there.
    """
    linux.unshare(Namespace.MOUNT)
    linux.keep_mounts_to_ourselves()
    beside = order.root.parent / _LENT
    knobs = _show_beside(order.knobs, beside / "knobs", None)
    binds = []
    for index, lent in enumerate(order.host.binds):
        place = beside / str(index)
        binds.append(replace(lent, source=_show_beside(Path(lent.source), place, users)))
        if lent.read_only:
            linux.make_read_only(place)  # now, so that the host's root cannot undo it
    os.chdir(order.root)
    user_range.enter_range(users)
    host = replace(order.host, binds=tuple(binds))
    return replace(order, host=host, root=Path(), knobs=Path(knobs))


def _show_beside(source: Path, place: Path, users: int | None) -> str:
    """Show a place of the machine under another name, its owners moved into a range where that can be.

    Returns:
        That name, as it is from the host's root.
    """
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(exist_ok=True)
        place.touch()
    try:
        linux.bind_with_owners(source, place, -1 if users is None else users)
    except OSError:  # what everybody may read, the range's users may read under any owner
        linux.mount(source, place, None, MountFlag.BIND | MountFlag.RECURSIVE)
    return f"../{_LENT}/{place.name}"


def _build_root(order: BootOrder) -> None:
    linux.keep_mounts_to_ourselves()
    root = order.root
    if order.users is not None:
        name = Path.cwd().name
        linux.mount(".", ".", None, MountFlag.BIND | MountFlag.RECURSIVE)
        os.chdir(f"../{name}")  # what lies over it now is the host's own, and can become its root
    linux.mount("proc", root / "proc", "proc", _NO_PRIVILEGES)
    linux.mount("sysfs", root / "sys", "sysfs", _NO_PRIVILEGES | MountFlag.READ_ONLY)
    linux.mount("cgroup2", root / "sys/fs/cgroup", "cgroup2", _NO_PRIVILEGES)
    make_node = _make_node if order.users is None else _show_node
    _make_devices(root, order.host.device_nodes, make_node)
    for folder, options in _TEMPORARY.items():
        (root / folder).mkdir(exist_ok=True)
        linux.mount("tmpfs", root / folder, "tmpfs", _NO_PRIVILEGES & ~MountFlag.NO_EXEC, options)
    (root / "run/lock").mkdir(mode=0o1777)
    _protect_machine(root)
    _mount_knobs(root, order.knobs)
    volatile = {
        path: file for path, file in order.host.files.items() if path.startswith(VOLATILE_FOLDERS)
    }
    _write_volatile(root, volatile)
    _cover_with_knobs(root, order)
    for lent in order.host.binds:
        _bind(root, lent)


def _make_devices(root: Path, device_nodes: tuple[str, ...], make_node: NodeMaker) -> None:
    devices = root / "dev"
    linux.mount("tmpfs", devices, "tmpfs", MountFlag.NO_SETUID, "mode=755,size=4m")
    for name in _DEVICES:  # the host's own: what its root makes of one stays there
        make_node(devices / name, Path("/dev", name))
    for name in ("pts", "mqueue"):
        (devices / name).mkdir()
    linux.mount(
        "devpts",
        devices / "pts",
        "devpts",
        MountFlag.NO_SETUID | MountFlag.NO_EXEC,
        "newinstance,ptmxmode=0666,mode=620,gid=5",
    )
    for name, target in _DEVICE_LINKS.items():
        (devices / name).symlink_to(target)
    for path in device_nodes:
        node = root / path.lstrip("/")
        node.parent.mkdir(parents=True, exist_ok=True)
        make_node(node, Path("/dev/null"))


def _make_node(node: Path, device: Path) -> None:
    """Make a device node that everybody may read and write, of the same device as one of the machine's."""
    os.mknod(node, stat.S_IFCHR, device.stat().st_rdev)
    node.chmod(0o666)


def _show_node(node: Path, device: Path) -> None:
    """Show one of the machine's own devices: users of a range make none."""
    node.touch()
    linux.bind(device, node)


def _protect_machine(root: Path) -> None:
    """Keep root on the host from changing what all hosts and the machine share."""
    for name in _READ_ONLY_PROC:
        path = root / "proc" / name
        if path.exists():
            linux.bind(path, path)
            linux.make_read_only(path)
    for name in _MASKED_PROC:
        path = root / "proc" / name
        if path.exists():
            linux.bind(root / "dev/null", path)


def _mount_knobs(root: Path, knobs: Path) -> None:
    for name in LIVE_FILES:  # the host's own, from its fresh procfs
        linux.bind(root / name.lstrip("/"), knobs / _below_knobs(name))
    for folder, where in MOUNT_POINTS.items():
        target = root / where.lstrip("/")
        if target.is_dir():
            linux.mount(knobs / folder, target, None, MountFlag.BIND | MountFlag.RECURSIVE)


def _below_knobs(path: str) -> str:
    folder, where = next(
        (folder, where) for folder, where in MOUNT_POINTS.items() if path.startswith(where + "/")
    )
    return folder + path.removeprefix(where)


def _write_volatile(root: Path, files: Mapping[str, LabFile]) -> None:
    """Write files into the folders that are new at every boot.

    Where the kernel's file system takes no new name, its nearest folder is replaced by a tmpfs that
    shows the same entries and takes them. A file that the kernel has already is covered by another one.
    """
    kernels = {(root / "sys").stat().st_dev, (root / "proc").stat().st_dev}
    for path, file in files.items():
        target = root / path.lstrip("/")
        if path.startswith(("/sys/", "/proc/")) and not target.exists():
            nearest = next(parent for parent in target.parents if parent.is_dir())
            if nearest.stat().st_dev in kernels:
                _shadow(nearest)
        elif target.is_file() and target.stat().st_dev in kernels:
            cover = root / COVERS / path.replace("/", "-").lstrip("-")
            cover.parent.mkdir(exist_ok=True)
            cover.touch()
            linux.bind(cover, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)


def _cover_with_knobs(root: Path, order: BootOrder) -> None:
    """Put each knob that lies outside the folders of knobs over its file, which is made where there is none."""
    for path in lone_files(order.host):
        target = root / path.lstrip("/")
        if not target.exists():
            _write_volatile(root, {path: LabFile(content=b"")})
        linux.bind(order.knobs / LONE / path.lstrip("/"), target)


def _shadow(folder: Path) -> None:
    """Put a tmpfs over a folder, with all that is in the folder, or mounted below it, bound or linked in it."""
    original = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    entries = list(os.scandir(folder))
    linux.mount("tmpfs", folder, "tmpfs", _NO_PRIVILEGES, "mode=755")
    for entry in entries:
        target = folder / entry.name
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry.name, dir_fd=original))
            continue
        if entry.is_dir():
            target.mkdir()
        else:
            target.touch()
        shown = f"/proc/self/fd/{original}/{entry.name}"
        linux.mount(shown, target, None, MountFlag.BIND | MountFlag.RECURSIVE)
    os.close(original)


def _bind(root: Path, lent: Bind) -> None:
    target = root / lent.target.lstrip("/")
    if Path(lent.source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    linux.bind(lent.source, target)
    if lent.read_only:
        linux.make_read_only(target)


def _run_systemd(order: BootOrder, console: int) -> None:
    socket.sethostname(order.host.name)
    nothing = os.open("/dev/null", os.O_RDONLY)
    linux.change_root(order.root)
    linux.share_mounts_with_children()  # systemd leaves that to whoever starts a container
    os.dup2(nothing, 0)
    os.dup2(console, 1)
    os.dup2(console, 2)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    arguments = ["/sbin/init", "systemd.unified_cgroup_hierarchy=1"]
    os.execve(SYSTEMD, arguments, ENVIRONMENT)  # noqa: S606 - no shell is meant
