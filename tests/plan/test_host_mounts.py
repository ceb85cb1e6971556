"""Which paths of a host a process may be shown."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.plan.host_mounts import gives_host_away, normal_path


@pytest.mark.parametrize(
    "path",
    [
        "/", "//", "/./", "/host/..", "/host/../", "/etc", "/etc/", "/etc/./", "//etc", "/etc/ssh", "/etc/moe-infra/x",
        "/proc", "/proc/1/root", "/proc/self/root/etc", "/proc/driver/..", "/sys", "/sys/fs/cgroup", "/dev", "/dev/mem",
        "/dev/kmem", "/dev/sda", "/dev/sda1", "/dev/vda", "/dev/nvme0n1p1", "/dev/mapper/root", "/var", "/var/run",
        "/run", "/var/run/docker.sock", "/run/docker.sock", "/models/../var/run/docker.sock", "/run/containerd",
        "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock", "/run/systemd/private",
        "/run/user/1000/podman/podman.sock", "/tmp/docker.sock", "/root", "/root/", "/root/.ssh", "/home",
        "/home/somebody/.ssh/authorized_keys", "/boot", "/usr", "/usr/bin", "/lib", "/lib64", "/var/lib",
        "/var/lib/docker", "/var/lib/kubelet/pods", "/var/lib/moe-infra", "/usr/local", "/usr/local/bin",
        "/usr/local/sbin", "/usr/local/lib", "/usr/libexec", "/home/somebody", "/root/.kube", "/home/somebody/.aws",
        "/run/udev", "/run/cdi", "/var/run/cdi", "/run/user/0", "/run/user/1000/bus", "/run/credentials",
        "/run/initramfs", "/run/snapd.socket", "/sys/kernel/uevent_helper", "/dev/fd", "/dev/fd/7", "/dev/core",
        "/dev/sg0", "/dev/ng0n1", "/dev/mmcblk0p1", "/dev/cpu/0/msr", "/etc/ssl/private", "/etc/gshadow", "/etc/cdi",
        "/var/lib/cloud", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/dpkg/info",
    ],
)  # fmt: skip
def test_what_gives_a_host_away_is_shown_to_nobody(path: str) -> None:
    assert gives_host_away(path, read_only=True)
    assert gives_host_away(path, read_only=False)


@pytest.mark.parametrize(
    "path",
    [
        "/models", "/mnt", "/data", "/root/.cache", "/root/.cache/huggingface", "/home/somebody/models",
        "/mnt/sfs_turbo/.cache", "/hf_hub_cache", "/configs", "/srv/models", "/opt/models", "/opt/hf-cache/x",
        "/var/cache/huggingface", "/var/lib/huggingface", "/tmp/job/cache", "/home/somebody/.cache/vllm", "/root/work",
        "/var/log/npu", "/usr/share/zoneinfo/Asia/Shanghai", "/usr/bin/hccn_tool", "/usr/local/nvidia/lib64",
        "volume:x",
        "/etc/hccn.conf", "/etc/ascend_install.info", "/etc/localtime", "/usr/local/Ascend/driver/lib64",
        "/usr/local/dcmi", "/usr/local/bin/npu-smi", "/dev/shm", "/dev/infiniband", "/dev/dri", "/dev/davinci0",
        "/dev/nvidia0", "/dev/nvidia-caps-imex-channels", "/sys/class/infiniband", "/run/nvidia",
        "/proc/driver/nvidia", "/home/kubernetes/bin/nvidia", "/var/lib/lxcfs/proc/cpuinfo", "/rootfs",
        "/etcetera", "/devices",
    ],
)  # fmt: skip
def test_what_published_deployments_mount_is_theirs_to_mount(path: str) -> None:
    assert gives_host_away(path, read_only=False) is None


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "/etc/profile.d", "/lib/modules", "/etc/cron.daily", "/etc/cron.hourly/x", "/etc/udev/rules.d",
        "/etc/logrotate.d", "/etc/update-motd.d", "/etc/rc.local", "/etc/docker", "/etc/default", "/etc/apt/apt.conf.d",
        "/etc/fstab", "/etc/alternatives", "/usr/lib/systemd/system", "/lib/systemd/system", "/lib/udev/rules.d",
        "/usr/lib/x86_64-linux-gnu", "/usr/share", "/opt/moe-infra", "/opt/moe-infra/engines", "/sys/kernel/mm",
        "/sys/module", "/root/.bashrc", "/home/somebody/.profile", "/root/.config/systemd/user", "/opt", "/tmp",
        "/var/tmp", "/sys/devices", "/var/log", "/var/log/journal", "/opt/vendor/bin", "/usr/local/cuda", "/var/mail",
        "/usr/local/share", "/usr/local/etc", "/usr/src", "/sys/class", "/sys/bus/pci", "/dev/watchdog", "/dev/input",
        "/dev/tty", "/dev/pts", "/dev/net/tun", "/dev/fuse", "/dev/vhost-net", "/run/lock", "/tmp/.X11-unix",
        "/tmp/ssh-abc/agent.1", "/home/somebody/.config", "/home/somebody/.local/bin", "/root/.npmrc", "/var/www",
        "/var/lib/postgresql", "/var/opt", "/snap/x", "/run/nvidia-x", "/var/lib/nfs", "/var/cache", "/var/cache/apt",
        "/var/backups", "/run/log",
    ],
)  # fmt: skip
def test_what_may_be_read_may_not_be_written(path: str) -> None:
    assert gives_host_away(path, read_only=True) is None
    assert gives_host_away(path, read_only=False)


def test_whatever_the_catalogue_mounts_stays_allowed(catalog: Catalog) -> None:
    mounts = [
        m for i in catalog.ids("accelerators") for m in catalog.accelerator(i).container.mounts
    ]
    mounts += [m for recipe in catalog.recipes.values() for m in recipe.mounts]
    assert mounts
    assert [m.source for m in mounts if gives_host_away(m.source, read_only=m.read_only)] == []


def test_a_path_has_one_spelling() -> None:
    assert normal_path("//var/run/./x/../docker.sock/") == "/run/docker.sock"
    assert normal_path("/../..") == "/"
