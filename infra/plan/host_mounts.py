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
_WRITES = "there no weights, caches or devices lie, and the host runs or obeys what it finds"
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
# What published deployments mount without a word of `ro`: files and folders of drivers, of devices, and of the host's
# own description. Everything else that is written must be data.
# (vLLM-Ascend guide Kimi-K2.5 and docs/source/installation.md; AMD's and NVIDIA's recipes of vLLM and SGLang; Google,
# "GPUDirect-TCPX" for GKE; checked 2026-11-26.)
_WRITTEN = (
    "/etc/ascend_install.info", "/etc/hccn.conf", "/etc/vnpu.cfg", "/etc/hccl_rootinfo.json", "/etc/hosts",
    "/etc/hostname", "/etc/resolv.conf", "/etc/localtime", "/etc/timezone", "/etc/machine-id", "/etc/nccl.conf",
    "/usr/local/Ascend", "/usr/local/dcmi", "/usr/local/bin/npu-smi", "/usr/bin/npu-smi", "/usr/bin/hccn_tool",
    "/usr/local/sbin/npu-smi", "/usr/local/nvidia", "/usr/share/zoneinfo", "/var/log/npu", "/var/queue_schedule",
    "/var/lib/lxcfs", "/run/nvidia", "/run/nvidia-persistenced", "/run/nvidia-fabricmanager", "/run/nvidia-imex",
    "/home/kubernetes/bin/nvidia", "/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/net",
)  # fmt: skip
# Folders at the root of a system (file-hierarchy(7), FHS 3.0); any other one is somebody's data.
_SYSTEM = re.compile(
    r"bin|boot|dev|efi|etc|home|lib|lib32|lib64|libx32|lost\+found|opt|proc|root|run|sbin|snap|sys|tmp|usr|var"
)
_DEVICE = re.compile(
    r"^/dev/(?:shm|infiniband|dri|nvidia|davinci|devmm_svm|hisi_hdc|kfd|gdrdrv|knem|xpmem|hugepages|uverbs|mqueue)"
)
# A folder of data among a system's own: below a user's, below /tmp, or named for what it holds.
_OF_USER = re.compile(r"^/(?:home/[^/]+|root)/(?:\.cache(?:/|$)|[^./])")
_OF_JOB = re.compile(r"^/(?:tmp|var/tmp)/(?!\.|ssh-|systemd-private|snap|tmux)[^/]+")
_FOR_DATA = re.compile(
    r"^/(?:opt|var/cache|var/lib|usr/local|usr/share)/[^/]*(?:model|weight|checkpoint|cache|hugging|hf[_-]?|hub|dataset)",
    re.IGNORECASE,
)
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
# What drivers show of themselves there; all else of it is the kernel's, and other processes'.
_OF_DRIVERS = "/proc/driver"


def normal_path(path: str) -> str:
    """A path as the kernel takes it: no `//`, no `.`, no `..`, no links that every host has."""
    found = posixpath.normpath(path)
    if found.startswith("//"):
        found = found[1:]
    for link, target in _LINKS.items():
        if is_at_or_below(found, link):
            return target + found.removeprefix(link)
    return found


def is_at_or_below(path: str, folder: str) -> bool:
    """Whether a normal path is a folder or lies in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")


def gives_host_away(source: str, *, read_only: bool) -> str | None:
    """Why a host's path is shown to no process; None where nothing speaks against it."""
    path = normal_path(source)
    if path != _OF_DRIVERS and is_at_or_below(path, _OF_DRIVERS):
        return None
    for pattern, why in _PATTERNS.items():
        if pattern.search(path):
            return why
    below = (why for closed, why in _CLOSED.items() if is_at_or_below(path, closed))
    holding = (why for each, why in {**_CLOSED, **_WHOLE}.items() if is_at_or_below(each, path))
    found = next(below, None) or next(holding, None)
    return found if found or read_only or _may_be_written(path) else _WRITES


def _may_be_written(path: str) -> bool:
    """Whether a process may write there: data of somebody's, or what published deployments mount so."""
    if not path.startswith("/"):  # a volume of a cluster
        return True
    if any(is_at_or_below(path, each) for each in _WRITTEN):
        return True
    patterns = (_DEVICE, _OF_USER, _OF_JOB, _FOR_DATA)
    is_data = not _SYSTEM.fullmatch(path.split("/")[1])
    return is_data or any(each.match(path) for each in patterns)


def mount_refusal(source: str, *, read_only: bool) -> tuple[str, str] | None:
    """What is wrong with a mount, and what mends it; None for one that gives nothing away."""
    why = gives_host_away(source, read_only=read_only)
    if why is None:
        return None
    if why == _WRITES:
        what = f"{source} of the host may be written by the process: {why}."
        return (
            what,
            "Mount it read-only, or a folder for weights and caches such as /models or /mnt/cache.",
        )
    what = (
        f"{source} of the host is shown to the process: {why}. Whoever holds that, holds the host."
    )
    return what, "Mount the one folder that the process reads, not what holds it."
