"""What a simulated host is made of: the data that its starter decides and the lab obeys."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

KernelFlavour = Literal["sysctl", "debugfs", "locked-down"]
"""Where the kernel keeps the scheduler's migration cost.

`sysctl`: `kernel.sched_migration_cost_ns` (kernels before 5.13); `debugfs`:
`/sys/kernel/debug/sched/migration_cost_ns`; `locked-down`: there too, but refused (Secure Boot).
"""

HostState = Literal["off", "rebooting", "booting", "ready", "failed"]
"""`rebooting`: off for its boot delay; `booting`: sshd does not answer yet; `failed`: systemd ended
or never began, and nobody asked for it."""

Link = Literal["up", "silent", "no-carrier"]
"""`silent`: packets are lost; `no-carrier`: and the host sees its cable unplugged."""

Strangers = Literal["no", "if-possible", "yes"]
"""Whether the hosts' users, root among them, are nobody on the machine (`user_range.py`)."""

PASSWORDLESS_SUDO = "ALL=(ALL) NOPASSWD:ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFile:
    """One file that a host has at its first boot (under /run, /tmp, /dev, /sys or /proc: at every).

    Args:
        content: bytes, as they are.
        mode: permission bits.
    """

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class LabUser:
    """One account of a host that the lab's key may log in as.

    Args:
        name: login name; its home is /home/<name>.
        uid: user and group id.
        sudo_rule: what follows the name in sudoers; empty for no sudo at all.
        password_hash: crypt(5) hash for `sudo` with a password; None for no password.
    """

    name: str
    uid: int = 1000
    sudo_rule: str = PASSWORDLESS_SUDO
    password_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file or folder of the machine that a host sees.

    Args:
        source: path on the machine.
        target: path on the host; may be the same, also below a masked folder such as /root.
        read_only: whether the host may not write to it.
    """

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHost:
    """One simulated host.

    Args:
        name: host name, as in the plan.
        address: IPv4 address, any.
        aside: interfaces beside `eth0` with an address that no other host reaches.
        num_cpus: logical CPUs that sysfs shows (`nproc` still tells the machine's).
        kernel: where the migration cost is found.
        has_cpufreq: whether a governor exists (virtual machines have none).
        page_size: what `getconf PAGESIZE` answers, in bytes.
        files: by path.
        sparse_files: size in bytes by path; they read as zeros and take no room.
        device_nodes: character devices under /dev (they behave as /dev/null).
        binds: what the machine lends.
        hidden: paths of the machine's root file system that this host lacks.
        users: accounts besides root.
        units: units among its files that every boot starts, by name.
        knobs: first value by path (`/proc/sys/…`, `/sys/…`), where it differs from the default, or where nothing is
            simulated otherwise: then this one file is (the kernel's own may be there, as below `/proc/sys/net`).
        registers: bytes by path below `/sys`, written in place (the configuration space of a PCI device).
        sshd_settings: sshd_config lines that win over the lab's.
        boot_delay_s: seconds between a reboot or reset and the start of systemd.
    """

    name: str
    address: str
    aside: tuple[str, ...] = ()
    num_cpus: int = 4
    kernel: KernelFlavour = "debugfs"
    has_cpufreq: bool = True
    page_size: int = 4096
    files: Mapping[str, LabFile] = field(default_factory=dict)
    sparse_files: Mapping[str, int] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    hidden: tuple[str, ...] = ()
    users: tuple[LabUser, ...] = (LabUser(name="ubuntu"),)
    units: tuple[str, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)
    registers: Mapping[str, bytes] = field(default_factory=dict)
    sshd_settings: tuple[str, ...] = ()
    boot_delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """An ed25519 key pair in OpenSSH's own text formats."""

    private: str
    public: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A simulated host as it is now.

    Args:
        name: as in the plan.
        address: its IPv4 address.
        state: whether it runs.
        link: whether it is on the network.
        boots: how often it was booted.
        boot_id: of the present boot, as /proc/sys/kernel/random/boot_id tells.
        ready_after_s: seconds from power-on to sshd's greeting; None before.
        is_frozen: whether all its processes are stopped.
        last_end: how the boot before ended: `reboot`, `poweroff`, `power cut`, or an error.
    """

    name: str
    address: str
    state: HostState
    link: Link
    boots: int
    boot_id: str
    ready_after_s: float | None
    is_frozen: bool
    last_end: str


def host_to_document(host: LabHost) -> dict[str, Any]:
    """The host as JSON values, for the supervisor."""
    document: dict[str, Any] = {name: getattr(host, name) for name in _PLAIN_FIELDS}
    document["files"] = {
        path: [base64.b64encode(file.content).decode(), file.mode]
        for path, file in host.files.items()
    }
    document["binds"] = [[bind.source, bind.target, bind.read_only] for bind in host.binds]
    document["users"] = [
        [user.name, user.uid, user.sudo_rule, user.password_hash] for user in host.users
    ]
    document["sparse_files"] = dict(host.sparse_files)
    document["knobs"] = dict(host.knobs)
    document["registers"] = {
        path: base64.b64encode(content).decode() for path, content in host.registers.items()
    }
    return document


def host_from_document(document: Mapping[str, Any]) -> LabHost:
    """The inverse of `host_to_document`."""
    fields = dict(document)
    fields["files"] = {
        path: LabFile(content=base64.b64decode(content), mode=mode)
        for path, (content, mode) in document["files"].items()
    }
    fields["registers"] = {
        path: base64.b64decode(content) for path, content in document["registers"].items()
    }
    fields["binds"] = tuple(
        Bind(source=source, target=target, read_only=read_only)
        for source, target, read_only in document["binds"]
    )
    fields["users"] = tuple(
        LabUser(name=name, uid=uid, sudo_rule=sudo_rule, password_hash=password_hash)
        for name, uid, sudo_rule, password_hash in document["users"]
    )
    for name in ("aside", "device_nodes", "hidden", "sshd_settings", "units"):
        fields[name] = tuple(document[name])
    return LabHost(**fields)


_PLAIN_FIELDS = (
    "name",
    "address",
    "aside",
    "num_cpus",
    "kernel",
    "has_cpufreq",
    "page_size",
    "device_nodes",
    "hidden",
    "sshd_settings",
    "units",
    "boot_delay_s",
)
