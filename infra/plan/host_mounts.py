"""Which paths of a host no process of a plan is shown: whoever holds one of them holds the host."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

# Where one path is a link to another on every distribution that engines run on (file-hierarchy(7)).
_LINKS: Mapping[str, str] = {
    "/var/run": "/run",
    "/var/lock": "/run/lock",
    "/bin": "/usr/bin",
    "/sbin": "/usr/sbin",
    "/lib": "/usr/lib",
    "/lib64": "/usr/lib64",
}
_RUNTIME = "there the container runtime takes orders as root"
_SERVICES = "there the host says what it runs, and as whom"
_KERNEL = "there the kernel takes orders"
_OTHERS = "there the files of other containers lie"
_LOGINS = "there the keys of the host's users lie"
_PROGRAMS = "there the host's own programs lie"
_KEYS = "there keys of the host lie"
# A folder, and what lies there. Whatever holds one is closed with it, and whatever lies below it.
_CLOSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "/run/docker.sock", "/run/docker", "/run/containerd", "/run/crio", "/run/podman", "/run/cri-dockerd.sock",
            "/run/k3s", "/run/buildkit", "/run/snapd.socket", "/run/lxd.socket", "/run/libvirt", "/run/cdi",
            "/var/snap", "/etc/cdi",
        ),
        _RUNTIME,
    ),
    **dict.fromkeys(
        (
            "/run/systemd", "/run/dbus", "/etc/systemd", "/etc/cron.d", "/etc/crontab", "/etc/sudoers",
            "/etc/sudoers.d", "/etc/shadow", "/etc/pam.d", "/etc/ssh", "/etc/kubernetes", "/etc/ld.so.preload",
            "/etc/moe-infra", "/var/lib/moe-infra", "/run/moe-infra", "/var/spool/cron", "/boot", "/efi", "/run/udev",
            "/run/user", "/run/initramfs", "/run/tmpfiles.d", "/run/sudo", "/var/lib/cloud", "/var/lib/dpkg",
            "/var/lib/rpm", "/var/lib/systemd", "/var/lib/snapd",
        ),
        _SERVICES,
    ),
    **dict.fromkeys(
        ("/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing",
         "/sys/kernel/config", "/sys/kernel/uevent_helper", "/sys/firmware", "/dev/mem", "/dev/kmem", "/dev/port",
         "/dev/kvm", "/proc", "/dev/mapper", "/dev/disk", "/dev/block", "/dev/char", "/dev/cpu", "/dev/kmsg",
         "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/core", "/dev/loop-control"),
        _KERNEL,
    ),
    **dict.fromkeys(
        ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher",
         "/var/lib/libvirt", "/var/lib/lxd", "/var/lib/lxc", "/var/lib/incus", "/var/lib/private", "/var/lib/etcd"),
        _OTHERS,
    ),
    **dict.fromkeys(("/etc/gshadow", "/etc/ssl/private", "/run/credentials", "/run/secrets"), _KEYS),
    "/root/.ssh": _LOGINS,
}  # fmt: skip
# Closed as a whole, and not below: what published deployments take of it is theirs to take.
_WHOLE: Mapping[str, str] = {
    "/home": _LOGINS,
    "/usr/bin": _PROGRAMS,
    "/usr/sbin": _PROGRAMS,
    "/usr/lib": _PROGRAMS,
    "/usr/lib64": _PROGRAMS,
    "/usr/libexec": _PROGRAMS,
    "/usr/local/bin": _PROGRAMS,
    "/usr/local/sbin": _PROGRAMS,
    "/usr/local/lib": _PROGRAMS,
}
# Read by every container that wants them, and written by none: the host runs or obeys what lies there.
_IF_WRITTEN = (
    "/etc", "/opt/cni", "/opt/moe-infra", "/sys/kernel", "/sys/module", "/sys/power", "/usr/lib/modules",
    "/usr/lib/systemd", "/usr/lib/udev", "/usr/lib/modprobe.d", "/usr/lib/sysctl.d", "/usr/lib/tmpfiles.d",
    "/usr/lib/python3", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/libexec", "/usr/local/lib",
    "/usr/local/sbin", "/usr/share",
)  # fmt: skip
# Files that published deployments mount from there without a word of `ro`, and that nobody runs or obeys as root.
_BUT_NOT = (
    "/etc/ascend_install.info", "/etc/hccn.conf", "/etc/vnpu.cfg", "/etc/hccl_rootinfo.json", "/etc/hosts",
    "/etc/hostname", "/etc/resolv.conf", "/etc/localtime", "/etc/timezone", "/etc/machine-id", "/etc/nccl.conf",
)  # fmt: skip
_PATTERNS: Mapping[re.Pattern[str], str] = {
    re.compile(
        r"(?:docker|containerd|podman|crio|cri-dockerd|buildkitd|dockershim)\.sock$"
    ): _RUNTIME,
    re.compile(r"/\.(?:ssh|kube|aws|azure|docker|gnupg|netrc|git-credentials)(?:/|$)"): _LOGINS,
    # a user's whole folder holds all of these
    re.compile(r"^/home/[^/]+$"): _LOGINS,
    re.compile(
        r"^/dev/(?:sd|hd|vd|xvd|nvme|dm-|md|loop|sg|ng|nbd|zd|rbd|mmcblk|pmem)[a-z]*\d*(?:[np]\d+)*$"
    ): _KERNEL,
}
# What a login of the user runs.
_AT_LOGIN = re.compile(r"^/(?:root|home/[^/]+)/\.(?:bash|profile|zsh|config(?:/systemd(?:/|$)|$))")
# What drivers show of themselves there; all else of it is the kernel's, and other processes'.
_OF_DRIVERS = "/proc/driver"


def normal_path(path: str) -> str:
    """A path as the kernel takes it: no `//`, no `.`, no `..`, no links that every host has."""
    found = posixpath.normpath(path)
    if found.startswith("//"):
        found = found[1:]
    for link, target in _LINKS.items():
        if _is_at_or_below(found, link):
            return target + found.removeprefix(link)
    return found


def gives_host_away(source: str, *, read_only: bool) -> str | None:
    """Why a host's path is shown to no process; None where nothing speaks against it."""
    path = normal_path(source)
    if path != _OF_DRIVERS and _is_at_or_below(path, _OF_DRIVERS):
        return None
    for pattern, why in _PATTERNS.items():
        if pattern.search(path):
            return why
    is_obeyed = any(_is_at_or_below(path, each) for each in _IF_WRITTEN) and path not in _BUT_NOT
    if not read_only and (is_obeyed or _AT_LOGIN.search(path)):
        return _SERVICES
    below = (why for closed, why in _CLOSED.items() if _is_at_or_below(path, closed))
    holding = (why for each, why in {**_CLOSED, **_WHOLE}.items() if _is_at_or_below(each, path))
    return next(below, None) or next(holding, None)


def mount_refusal(source: str, *, read_only: bool) -> tuple[str, str] | None:
    """What is wrong with a mount, and what mends it; None for one that gives nothing away."""
    why = gives_host_away(source, read_only=read_only)
    if why is None:
        return None
    what = (
        f"{source} of the host is shown to the process: {why}. Whoever holds that, holds the host."
    )
    return what, "Mount the one folder that the process reads, not what holds it."


def _is_at_or_below(path: str, folder: str) -> bool:
    return folder in (path, "/") or path.startswith(f"{folder}/")
