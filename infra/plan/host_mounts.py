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
# A folder, and what lies there. Whatever holds one is closed with it, and whatever lies below it.
_CLOSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "/run/docker.sock", "/run/docker", "/run/containerd", "/run/crio", "/run/podman", "/run/cri-dockerd.sock",
            "/run/k3s", "/run/buildkit",
        ),
        _RUNTIME,
    ),
    **dict.fromkeys(
        (
            "/run/systemd", "/run/dbus", "/etc/systemd", "/etc/cron.d", "/etc/crontab", "/etc/sudoers",
            "/etc/sudoers.d", "/etc/shadow", "/etc/pam.d", "/etc/ssh", "/etc/kubernetes", "/etc/ld.so.preload",
            "/etc/moe-infra", "/var/lib/moe-infra", "/run/moe-infra", "/var/spool/cron", "/boot",
        ),
        _SERVICES,
    ),
    **dict.fromkeys(
        ("/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security", "/dev/mem", "/dev/kmem",
         "/dev/port", "/dev/kvm", "/proc", "/dev/mapper", "/dev/disk", "/dev/block"),
        _KERNEL,
    ),
    **dict.fromkeys(
        ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher"),
        _OTHERS,
    ),
    "/root/.ssh": _LOGINS,
}  # fmt: skip
# Closed as a whole, and not below: what published deployments take of it is theirs to take.
_WHOLE: Mapping[str, str] = {
    "/home": _LOGINS,
    "/usr/bin": _PROGRAMS,
    "/usr/sbin": _PROGRAMS,
    "/usr/lib": _PROGRAMS,
    "/usr/lib64": _PROGRAMS,
}
# Read by every container that wants them, and written by none.
_IF_WRITTEN = (
    "/etc/passwd", "/etc/group", "/etc/profile", "/etc/profile.d", "/etc/environment", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/ld.so.cache", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/sysctl.d",
    "/usr/lib/modules",
)  # fmt: skip
_PATTERNS: Mapping[re.Pattern[str], str] = {
    re.compile(
        r"(?:docker|containerd|podman|crio|cri-dockerd|buildkitd|dockershim)\.sock$"
    ): _RUNTIME,
    re.compile(r"/\.ssh(?:/|$)"): _LOGINS,
    re.compile(r"^/dev/(?:sd|hd|vd|xvd|nvme|dm-|md|loop)[a-z]*\d*(?:[np]\d+)*$"): _KERNEL,
}
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
    if not read_only and any(_is_at_or_below(path, each) for each in _IF_WRITTEN):
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
