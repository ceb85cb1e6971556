"""What the lab needs of the machine, checked before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from infra.rehearsal.lab.errors import LabError

PROGRAMS = {  # program → Debian package
    "/usr/sbin/sshd": "openssh-server",
    "/lib/systemd/systemd": "systemd",
    "dbus-daemon": "dbus",
    "ip": "iproute2",
    "sysctl": "procps",
    "sudo": "sudo",
}
FUSE_DEVICE = Path("/dev/fuse")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_prerequisites() -> None:
    """Nothing, when a lab can be started here.

    Raises:
        LabError: what is missing, and what to type.
    """
    reason = missing()
    if reason is not None:
        raise reason


def missing() -> LabError | None:
    """Why no lab can be started here; None when one can."""
    if platform.system() != "Linux":
        return LabError(
            platform.system(),
            "has no namespaces, so there are no simulated hosts.",
            "Use Linux; check, plan, render and estimate work everywhere.",
        )
    if os.geteuid() != 0:
        return LabError(
            "this user",
            "is not root, and simulated hosts need mounts and namespaces.",
            "Run it with sudo; check, plan, render and estimate need no root.",
        )
    packages = [
        package
        for program, package in PROGRAMS.items()
        if shutil.which(program, path=_SYSTEM_PATH) is None
    ]
    if packages:
        return LabError(
            "this machine",
            f"lacks {len(packages)} packages of a simulated host: {', '.join(packages)}.",
            f"Run scripts/setup, or apt-get install {' '.join(packages)}.",
        )
    if not os.access(FUSE_DEVICE, os.R_OK | os.W_OK):
        return LabError(
            str(FUSE_DEVICE),
            "cannot be opened, and it answers the hosts' kernel knobs.",
            "modprobe fuse; in a container, pass --device /dev/fuse and CAP_SYS_ADMIN.",
        )
    return None
