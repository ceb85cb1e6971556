"""The file system that a container sees: built on a tmpfs in its own mount namespace.

Of the machine only /usr (without /usr/local), /proc and /sys shine through. All else is what the image
declares, what the command line mounts, and what every container has.
"""

from __future__ import annotations

import errno
import os

from . import linux
from .failures import Refusal
from .host_state import STANDIN_NOTICE, run_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .container_request import MountRequest

MERGED_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
OWN_FOLDERS = [
    "dev",
    "etc",
    "home",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "var/lib",
    "var/log",
    "var/tmp",
]
ETC_FILES = ["hosts", "hostname", "resolv.conf", "nsswitch.conf", "localtime", "ld.so.cache"]
PLAIN_NODES = ("null", "zero", "full", "random", "urandom", "tty")
STANDARD_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
ROOT_OPTIONS = "mode=755,size=256m"
LAYER = "/.image"
# Since glibc 2.34 this library is empty and harmless: what an image's shared libraries are made from.
EMPTY_LIBRARIES = (
    f"/usr/lib/{os.uname().machine}-linux-gnu/libdl.so.2",
    "/usr/lib64/libdl.so.2",
    "/lib64/libdl.so.2",
)
SHARED_MEMORY = "/dev/shm"  # noqa: S108  the host's own, as --ipc=host says


class RootPlan:
    """What one container's root holds beside the standard parts."""

    __slots__ = (
        "always_bound",
        "files",
        "groups",
        "mounts",
        "nodes",
        "read_only",
        "shared_memory_bytes",
        "shims",
    )

    def __init__(self) -> None:
        """Start with nothing but the standard parts."""
        self.always_bound: list[tuple[str, bool]] = []
        """(path, read only) of what the simulation itself needs, at the same place as outside."""
        self.files: list[str] = []
        """Paths that the image declares: libraries that load and do nothing, else empty files."""
        self.groups: dict[str, int] = {}
        self.mounts: list[MountRequest] = []
        self.nodes: list[tuple[str, str]] = []
        """(path on the host, path in the container) of each device."""
        self.read_only = False
        self.shared_memory_bytes = 0
        """Size of an own /dev/shm; 0 shares the host's."""
        self.shims: dict[str, str] = {}
        """Name in /usr/local/bin → text of the script."""


def enter_root(plan: RootPlan) -> None:
    """Build the root and move this process into it; its mount namespace must be its own.

    Raises:
        Refusal: a mount that the real runtime would refuse as well.
        OSError: the kernel refuses something else.
    """
    linux.make_mounts_private()
    root = run_folder() + "/root"
    os.makedirs(root, exist_ok=True)
    linux.mount("tmpfs", root, "tmpfs", linux.MS_NOSUID, ROOT_OPTIONS)
    for name in OWN_FOLDERS:
        os.mkdir(f"{root}/{name}")
    for name in ("tmp", "var/tmp"):
        os.chmod(f"{root}/{name}", 0o1777)  # noqa: S103  as /tmp is everywhere
    os.symlink("../run", root + "/var/run")
    _add_programs(root, plan)
    _add_etc(root, plan)
    linux.bind("/proc", root + "/proc", read_only=False)
    linux.bind("/sys", root + "/sys", read_only=True)
    _add_nodes(root, plan)
    for path in plan.files:
        if not os.path.lexists(root + path):
            _place_image_file(root + path)
    for path, read_only in plan.always_bound:
        if os.path.exists(path):
            _make_place(root + path, is_folder=os.path.isdir(path))
            linux.bind(path, root + path, read_only=read_only)
    for mount in plan.mounts:
        _add_mount(root, mount)
    if plan.read_only:
        linux.make_read_only(root)
    linux.pivot_into(root)


def _add_programs(root: str, plan: RootPlan) -> None:
    """Show the machine's programs and libraries, with the image's own files laid over them."""
    for name in MERGED_FOLDERS:
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), f"{root}/{name}")
        elif os.path.isdir("/" + name):
            os.mkdir(f"{root}/{name}")
            linux.bind("/" + name, f"{root}/{name}", read_only=True)
    if not _lay_over_usr(root, plan):
        linux.bind("/usr", root + "/usr", read_only=True)
    linux.mount("tmpfs", root + "/usr/local", "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    os.mkdir(root + "/usr/local/bin")
    for name, text in plan.shims.items():
        descriptor = os.open(f"{root}/usr/local/bin/{name}", os.O_WRONLY | os.O_CREAT, 0o755)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def _lay_over_usr(root: str, plan: RootPlan) -> bool:
    """Mount /usr with places that the machine lacks, and return whether that was needed and done."""
    wanted = [(path, False) for path in plan.files]
    wanted += [(mount.target, _is_folder(mount)) for mount in plan.mounts]
    missing = [
        (path, is_folder)
        for path, is_folder in ((_merged(path), is_folder) for path, is_folder in wanted)
        if path.startswith("/usr/")
        and not path.startswith("/usr/local/")
        and not os.path.lexists(path)
    ]
    if not missing:
        return False
    layer = root + LAYER
    for path, is_folder in missing:
        if path in plan.files:
            _place_image_file(layer + path)
        else:
            _make_place(layer + path, is_folder=is_folder)
    try:
        options = f"lowerdir={layer}/usr:/usr"
        linux.mount("overlay", root + "/usr", "overlay", linux.MS_RDONLY, options)
    except OSError as error:
        notice = (
            f"{STANDIN_NOTICE}: the kernel lays no files over /usr here ({error.strerror}); "
            f"missing in this container: {' '.join(path for path, _ in missing)}\n"
        )
        os.write(2, notice.encode())
        return False
    return True


def _merged(path: str) -> str:
    """Return a path as it is when /lib and its like are links into /usr."""
    first, _, rest = path[1:].partition("/")
    if first in MERGED_FOLDERS and os.path.islink("/" + first):
        return f"/usr/{first}/{rest}"
    return path


def _add_etc(root: str, plan: RootPlan) -> None:
    """Give the container the few files of /etc that every image has."""
    group_lines = "".join(f"{name}:x:{number}:\n" for name, number in plan.groups.items())
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/bash\n"), ("group", group_lines)):
        descriptor = os.open(f"{root}/etc/{name}", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    for name in ETC_FILES:
        if os.path.isfile("/etc/" + name):
            _make_place(f"{root}/etc/{name}", is_folder=False)
            linux.bind("/etc/" + name, f"{root}/etc/{name}", read_only=name == "ld.so.cache")


def _add_nodes(root: str, plan: RootPlan) -> None:
    """Fill /dev with the harmless nodes and the requested devices."""
    folder = root + "/dev"
    linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    nodes = [("/dev/" + name, "/dev/" + name) for name in PLAIN_NODES] + plan.nodes
    for source, target in nodes:
        if os.path.exists(source):
            _make_place(root + target, is_folder=False)
            linux.bind(source, root + target, read_only=False)
    for name, target in STANDARD_LINKS.items():
        os.symlink(target, f"{folder}/{name}")
    os.mkdir(folder + "/pts")
    if os.path.isdir("/dev/pts"):
        linux.bind("/dev/pts", folder + "/pts", read_only=False)
    os.mkdir(folder + "/shm")
    if plan.shared_memory_bytes:
        options = f"mode=1777,size={plan.shared_memory_bytes}"
        linux.mount("shm", folder + "/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    elif os.path.isdir(SHARED_MEMORY):
        linux.bind(SHARED_MEMORY, folder + "/shm", read_only=False)


def _add_mount(root: str, mount: MountRequest) -> None:
    """Mount one request of the command line; its source exists by now."""
    place = root + mount.target
    try:
        _make_place(place, is_folder=_is_folder(mount))
        if mount.kind == "tmpfs":
            linux.mount("tmpfs", place, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, mount.options)
        else:
            linux.bind(mount.source, place, read_only=mount.read_only)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
            facts = {"source": mount.source, "target": mount.target}
            raise Refusal("mount_kinds_differ", **facts) from None
        reason = (error.strerror or str(error)).lower()
        text = f'error mounting "{mount.source}" to rootfs at "{mount.target}": {reason}'
        raise Refusal("start_failed", reason=text) from None


def _is_folder(mount: MountRequest) -> bool:
    """Return whether a mount needs a folder to stand on."""
    return mount.kind == "tmpfs" or os.path.isdir(mount.source)


def _place_image_file(path: str) -> None:
    """Make a file that the image declares: a loadable library, or an empty file."""
    _make_place(path, is_folder=False)
    library = next((name for name in EMPTY_LIBRARIES if os.path.isfile(name)), "")
    if ".so" in os.path.basename(path) and library:
        with open(library, "rb") as source, open(path, "wb") as target:
            target.write(source.read())


def _make_place(path: str, *, is_folder: bool) -> None:
    """Make what a mount stands on, or leave it when it is there and of the right kind.

    Raises:
        OSError: ENOTDIR or EISDIR when something of the other kind is there.
    """
    if os.path.isdir(path) if is_folder else os.path.isfile(path):
        return
    if os.path.exists(path) and (is_folder or os.path.isdir(path)):
        number = errno.ENOTDIR if is_folder else errno.EISDIR
        raise OSError(number, os.strerror(number), path)
    if is_folder:
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
