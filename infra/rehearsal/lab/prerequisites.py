"""What the lab needs of the machine, checked before anything is started."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from dataclasses import dataclass
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
_CAP_SYS_RESOURCE = 24
_LIMITS = {
    "LimitNOFILE": resource.RLIMIT_NOFILE,
    "LimitMEMLOCK": resource.RLIMIT_MEMLOCK,
    "LimitSTACK": resource.RLIMIT_STACK,
}
FUSE_DEVICE = Path("/dev/fuse")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of a machine the lab depends on.

    Args:
        system: as uname(1) says it.
        uid: effective user id of this process.
        programs: those of `PROGRAMS` that are installed.
        has_fuse: whether /dev/fuse can be opened.
    """

    system: str
    uid: int
    programs: frozenset[str]
    has_fuse: bool


def limit_notice() -> str:
    """What programs on the hosts cannot have here, whatever their units ask for; empty: all.

    Without CAP_SYS_RESOURCE nobody on the machine can raise a hard limit; systemd then takes the
    nearest that it gets.
    """
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    if int(effective.split()[1], 16) >> _CAP_SYS_RESOURCE & 1:
        return ""
    capped = [
        f"{name} {limit}"
        for name, number in _LIMITS.items()
        if (limit := resource.getrlimit(number)[1]) != resource.RLIM_INFINITY
    ]
    return (
        f"root lacks CAP_SYS_RESOURCE on this machine, so hosts have at most {', '.join(capped)}"
        if capped
        else ""
    )


def check_prerequisites() -> None:
    """Nothing, when a lab can be started here.

    Raises:
        LabError: what is missing, and what to type.
    """
    reason = missing(observe_machine())
    if reason is not None:
        raise reason


def observe_machine() -> Machine:
    """What of this machine the lab depends on."""
    return Machine(
        system=platform.system(),
        uid=os.geteuid() if hasattr(os, "geteuid") else -1,
        programs=frozenset(
            program for program in PROGRAMS if shutil.which(program, path=_SYSTEM_PATH)
        ),
        has_fuse=os.access(FUSE_DEVICE, os.R_OK | os.W_OK),
    )


def missing(machine: Machine) -> LabError | None:
    """Why no lab can be started on a machine; None when one can."""
    if machine.system != "Linux":
        return LabError(
            machine.system,
            "has no namespaces, so there are no simulated hosts.",
            "Use Linux; check, plan, render and estimate work everywhere.",
        )
    if machine.uid != 0:
        return LabError(
            "this user",
            "is not root, and simulated hosts need mounts and namespaces.",
            "Run it with sudo; check, plan, render and estimate need no root.",
        )
    packages = [package for program, package in PROGRAMS.items() if program not in machine.programs]
    if packages:
        return LabError(
            "this machine",
            f"lacks {len(packages)} packages of a simulated host: {', '.join(packages)}.",
            f"Run scripts/setup, or apt-get install {' '.join(packages)}.",
        )
    if not machine.has_fuse:
        return LabError(
            str(FUSE_DEVICE),
            "cannot be opened, and it answers the hosts' kernel knobs.",
            "modprobe fuse; in a container, pass --device /dev/fuse and CAP_SYS_ADMIN.",
        )
    return None
