"""The overlay layers of the hosts: one common to all, one of each host's own.

Below them lies the machine's root file system. What of it must not show is covered: a folder by an
opaque one (xattr `trusted.overlay.opaque`), anything else by a whiteout (character device 0:0).
"""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

from infra.rehearsal.lab.hosts import HostKey, LabHost, LabUser

# fmt: off
STANDARD_FOLDERS = frozenset((
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt",
    "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var",
))
# fmt: on
"""What of the machine's `/` a host may have; everything else there is hidden."""

EMPTIED_FOLDERS = {
    "boot": 0o755,
    "home": 0o755,
    "media": 0o755,
    "mnt": 0o755,
    "opt": 0o755,
    "root": 0o700,
    "srv": 0o755,
    "etc/cron.d": 0o755,
    "etc/docker": 0o755,
    "etc/modules-load.d": 0o755,
    "etc/profile.d": 0o755,
    "etc/security/limits.d": 0o755,
    "etc/ssh": 0o755,
    "etc/sudoers.d": 0o750,
    "etc/sysctl.d": 0o755,
    "etc/systemd/system": 0o755,
    "etc/systemd/system.conf.d": 0o755,
    "etc/systemd/journald.conf.d": 0o755,
    "etc/tmpfiles.d": 0o755,
    "var/backups": 0o755,
    "var/log": 0o755,
    "var/spool": 0o755,
    "var/tmp": 0o1777,
}
"""Folder of the machine → its mode on a host, where it is empty at first."""

WANTED_UNITS = {
    "sysinit.target": (
        "systemd-journald.service",
        "systemd-sysctl.service",
        "systemd-tmpfiles-setup.service",
    ),
    "sockets.target": ("dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"),
    "multi-user.target": ("ssh.service",),
}
"""Target → the units that it starts; dbus and logind start when first spoken to."""

TMPFILES = frozenset({"tmp.conf"})
"""The only snippets of the machine's tmpfiles.d that hosts run at boot."""

SSH_UNIT = """\
[Unit]
Description=OpenBSD Secure Shell server
After=network.target

[Service]
Type=notify
ExecStart=/usr/sbin/sshd -D
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
Restart=on-failure
RestartPreventExitStatus=255
RuntimeDirectory=sshd
RuntimeDirectoryMode=0755

[Install]
WantedBy=multi-user.target
Alias=sshd.service
"""

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM yes
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""

SSHD_PAM = """\
@include common-auth
account required pam_nologin.so
@include common-account
session optional pam_keyinit.so force revoke
session required pam_limits.so
session required pam_env.so
session required pam_permit.so
"""
"""Debian's, without what asks logind for a session at every login (a user manager each)."""

COMMON_FILES = {
    "etc/ssh/moduli": "",
    "etc/pam.d/sshd": SSHD_PAM,
    "etc/systemd/system/ssh.service": SSH_UNIT,
    "etc/systemd/system.conf.d/lab.conf": "[Manager]\nShowStatus=no\n",
    "etc/systemd/journald.conf.d/lab.conf": (
        "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nRuntimeMaxUse=32M\n"
        "ForwardToSyslog=no\nReadKMsg=no\nAudit=no\n"
    ),
    "etc/fstab": "",
    "etc/environment": "",
    "etc/motd": "",
    "etc/resolv.conf": "",
    "etc/sysctl.conf": "",
    "etc/nsswitch.conf": (
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
        "protocols: files\nservices: files\n"
    ),
    "etc/sudoers": (
        "Defaults env_reset\n"
        'Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n'
        "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n"
    ),
}

FIRST_HUMAN_UID = 1000
NOBODY_UID = 65534
GETCONF = """\
#!/bin/sh
case "$*" in PAGESIZE|PAGE_SIZE) echo {page_size};; *) exec /usr/bin/getconf "$@";; esac
"""


def write_common_layer(layer: Path, machine_root: Path, hosts: tuple[LabHost, ...]) -> None:
    """What all hosts have over the machine's root file system."""
    layer.mkdir(mode=0o755)
    for name in sorted(os.listdir(machine_root)):
        if name not in STANDARD_FOLDERS:
            _hide(layer / name)
    for folder, mode in EMPTIED_FOLDERS.items():
        _empty(layer, folder, mode)
    for path, content in COMMON_FILES.items():
        _write(layer / path, content.encode(), 0o644)
    (layer / "etc/sudoers").chmod(0o440)
    names = "".join(f"{host.address} {host.name}\n" for host in hosts)
    _write(layer / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{names}".encode(), 0o644)
    _choose_units(layer, machine_root)
    for kind in ("system-generators", "system-environment-generators"):
        for generator in _names(machine_root, f"usr/lib/systemd/{kind}", f"lib/systemd/{kind}"):
            _link(layer / "etc/systemd" / kind / generator, "/dev/null")
    for snippet in _names(machine_root, "usr/lib/tmpfiles.d"):
        if snippet not in TMPFILES:
            _link(layer / "etc/tmpfiles.d" / snippet, "/dev/null")


def write_host_layer(
    layer: Path, machine_root: Path, host: LabHost, key: HostKey, login_key: str
) -> None:
    """What one host has of its own at its first boot."""
    machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{host.name}.{host.address}").hex
    sshd_config = "".join(f"{line}\n" for line in host.sshd_settings) + SSHD_CONFIG
    for path, content, mode in (
        ("etc/hostname", f"{host.name}\n", 0o644),
        ("etc/machine-id", f"{machine_id}\n", 0o444),
        ("etc/ssh/ssh_host_ed25519_key", key.private, 0o600),
        ("etc/ssh/ssh_host_ed25519_key.pub", f"{key.public}\n", 0o644),
        ("etc/ssh/sshd_config", sshd_config, 0o644),
    ):
        _write(layer / path, content.encode(), mode)
    if host.page_size != os.sysconf("SC_PAGE_SIZE"):
        getconf = GETCONF.format(page_size=host.page_size)
        _write(layer / "usr/local/bin/getconf", getconf.encode(), 0o755)
    _write_accounts(layer, machine_root, host.users)
    _authorise(layer / "root", login_key, 0)
    for user in host.users:
        home = layer / "home" / user.name
        home.mkdir(parents=True)
        _authorise(home, login_key, user.uid)
        os.chown(home, user.uid, user.uid)
        if user.sudo_rule:
            rule = f"{user.name} {user.sudo_rule}\n"
            _write(layer / "etc/sudoers.d" / f"90-{user.name}", rule.encode(), 0o440)
    for unit in host.units:
        wants = layer / "etc/systemd/system/multi-user.target.wants"
        _link(wants / unit, f"/usr/lib/systemd/system/{unit}")
    for path in host.hidden:
        _hide(layer / path.lstrip("/"))
    for path, file in host.files.items():
        if not path.startswith(VOLATILE_FOLDERS):
            _write(layer / path.lstrip("/"), file.content, file.mode)
    for path, size in host.sparse_files.items():
        target = layer / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        os.truncate(target, size)


VOLATILE_FOLDERS = ("/run/", "/tmp/", "/dev/", "/sys/", "/proc/")  # noqa: S108 - the host's own
"""Where files are made anew at every boot, not in the layer."""


def _choose_units(layer: Path, machine_root: Path) -> None:
    """Replace what the machine's targets start by `WANTED_UNITS`."""
    vendor = _unit_folder(machine_root)
    for name in os.listdir(machine_root / vendor):
        if name.endswith((".wants", ".requires")):
            _empty(layer, f"{vendor}/{name}", 0o755)
    for target, units in WANTED_UNITS.items():
        for unit in units:
            folder = "etc/systemd/system" if unit == "ssh.service" else vendor
            _link(layer / folder / f"{target}.wants" / unit, f"/{folder}/{unit}")
    _link(layer / "etc/systemd/system/default.target", f"/{vendor}/multi-user.target")
    _link(layer / "etc/systemd/system/sshd.service", "/etc/systemd/system/ssh.service")


def _unit_folder(machine_root: Path) -> str:
    """Where the machine's own units lie, without a leading slash; /lib may be a link to usr/lib."""
    return (
        "lib/systemd/system"
        if not (machine_root / "lib").is_symlink()
        else "usr/lib/systemd/system"
    )


def _write_accounts(layer: Path, machine_root: Path, users: tuple[LabUser, ...]) -> None:
    """The machine's system accounts without passwords, and the host's users."""
    files = {"passwd": 0o644, "group": 0o644, "shadow": 0o640}
    system_names: set[str] = set()
    for name, mode in files.items():
        kept = []
        for line in (machine_root / "etc" / name).read_text().splitlines():
            fields = line.split(":")
            if name == "shadow":
                if fields[0] in system_names:
                    kept.append(":".join([fields[0], "*", *fields[2:]]))
            elif _is_system_id(fields[2]):
                kept.append(line)
                if name == "passwd":
                    system_names.add(fields[0])
        kept.extend(_account_line(name, user) for user in users)
        _write(layer / "etc" / name, ("\n".join(kept) + "\n").encode(), mode)


def _account_line(file_name: str, user: LabUser) -> str:
    return {
        "passwd": f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:/bin/bash",
        "group": f"{user.name}:x:{user.uid}:",
        "shadow": f"{user.name}:{user.password_hash or '*'}:19000:0:99999:7:::",
    }[file_name]


def _is_system_id(number: str) -> bool:
    return not number.isdigit() or int(number) < FIRST_HUMAN_UID or int(number) == NOBODY_UID


def _authorise(home: Path, login_key: str, uid: int) -> None:
    folder = home / ".ssh"
    _write(folder / "authorized_keys", f"{login_key}\n".encode(), 0o600)
    folder.chmod(0o700)
    if uid == 0:
        home.chmod(0o700)
    for path in (folder, folder / "authorized_keys"):
        os.chown(path, uid, uid)


def _names(machine_root: Path, *folders: str) -> list[str]:
    """File names in the first of the folders that exists."""
    for folder in folders:
        if (machine_root / folder).is_dir():
            return sorted(os.listdir(machine_root / folder))
    return []


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _empty(layer: Path, folder: str, mode: int) -> None:
    path = layer / folder
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    os.setxattr(path, "trusted.overlay.opaque", b"y")


def _hide(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
