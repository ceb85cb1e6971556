"""How items are made to refuse or to keep their value on simulated hosts, each in the ways that it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.agent.kinds.boot_settings import GRUB_FOLDER
from infra.agent.kinds.kernel_knobs import (
    MIGRATION_COST_DEBUGFS,
    MIGRATION_COST_SYSCTL,
    NFS_READ_AHEAD,
    RESERVED_PORTS,
    sysctl_path,
)
from infra.agent.kinds.nvidia import IMEX_FOLDER
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.knob_tree import NFS_DEVICE
from infra.rehearsal.lab.knobs import Fault
from infra.render.wanted_tuning import WantedTuning
from tests.cli.tuning_cells import Shown
from tests.cli.tuning_flavours import ENGINE_UNIT, JEMALLOC, TOOL_FAULT, Flavour

ONLY_LOOKED_AT = ("unit-limits", "preload")
# By kind, the tools that bring it about.
TOOLS = {
    "service": ("systemctl",),
    "clock": ("systemctl",),
    "imex-nodes": ("systemctl",),
    "mtu": ("ip",),
    "gpu-persistence": ("nvidia-smi",),
    "gpu-setting": ("nvidia-smi",),
    "kernel-module": ("modprobe",),
    "package-hold": ("apt-mark",),
    "kernel-arguments": ("update-grub", "grubby"),
    "module-options": ("update-initramfs", "dracut"),
}
# By kind, where it is written: a file system that may be read-only.
PLACES = {
    "login-limits": "/etc/security/limits.d",
    "imex-nodes": IMEX_FOLDER,
    "kernel-arguments": GRUB_FOLDER,
    "numa-policy": "/etc/systemd/system.conf.d",
    "kernel-module": "/etc/modules-load.d",
    "module-options": "/etc/modprobe.d",
    "reserved-ports": RESERVED_PORTS,
}
KNOBS = (
    "sysctl", "sysfs", "choice", "migration-cost", "reserved-ports", "nfs-read-ahead", "pcie-acs",
)  # fmt: skip
NEEDS_BOOT = ("kernel-arguments", "module-options", "numa-policy")
# What is not written can only be found to be wrong: by kind, the way and how it is brought about and undone.
LOWERED = f"/run/systemd/system/{ENGINE_UNIT}.service.d"
LOWER = f"mkdir {LOWERED}; printf '[Service]\\nLimitNOFILE=1024\\n' > {LOWERED}/x.conf"
FOUND_WRONG = {
    "unit-limits": (
        "too-low",
        f"{LOWER}; systemctl daemon-reload",
        f"rm -r {LOWERED}; systemctl daemon-reload",
    ),
    "preload": ("unusable", f"mount --bind /etc/hostname {JEMALLOC}", f"umount {JEMALLOC}"),
}
# A file that systemd reads after ours, as an image may have one.
LATER = "/etc/systemd/system.conf.d/90-image.conf"
SAID = {"knob": "(EPERM)", "read-only": "(EROFS)", "too-low": "LimitNOFILE=1024"}
SAID["unusable"] = "cannot be preloaded"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong with everything at a time.

    Args:
        tools: what all tools do; "" for what they are asked.
        knobs: how writes to knobs end; None for well.
        is_read_only: whether places are.
    """

    tools: str = ""
    knobs: Fault | None = None
    is_read_only: bool = False


REFUSING = Trouble(tools="refuses", knobs="EPERM")
READ_ONLY = Trouble(is_read_only=True)
STICKING = Trouble(tools="sticks", knobs="sticky")


def ways_of(item: WantedTuning, column: str) -> set[str]:
    """In which ways an item can refuse or stick."""
    ways = set(TOOLS.get(item.kind, ()))
    ways |= {"knob"} if item.kind in KNOBS else set()
    if column == "sticks":
        return ways | ({"boot"} if item.kind in NEEDS_BOOT else set())
    ways |= {"read-only"} if item.kind in (*PLACES, "sysctl") else set()
    return ways | ({FOUND_WRONG[item.kind][0]} if item.kind in FOUND_WRONG else set())


def said_by(way: str) -> str:
    """What the report must say of an item that has refused in this way."""
    return SAID.get(way, f"{way}: Access denied")


def bring_trouble(
    lab: Lab, flavour: Flavour, items: Sequence[tuple[Shown, WantedTuning]], what: Trouble
) -> None:
    """Make what the table promises of a flavour go wrong.

    Args:
        lab: runs it.
        flavour: whose host.
        items: each promise with its item; those of other troubles are passed over.
        what: the trouble.
    """
    script = [f"echo {what.tools} > {TOOL_FAULT}"] if what.tools else []
    for shown, item in items:
        if shown.way == "knob" and what.knobs is not None:
            for knob in knobs_of(lab, flavour, item):
                lab.inject(flavour.name, knob, what.knobs)
        elif shown.way == "read-only" and what.is_read_only:
            place = place_of(item)
            script.append(f"mountpoint -q {place} || mount --bind {place} {place}")
            script.append(f"mount -o remount,ro,bind {place}")
        elif item.kind in FOUND_WRONG and shown.column == "refuses" and what == REFUSING:
            script.append(FOUND_WRONG[item.kind][1])
        elif item.kind == "numa-policy" and shown.way == "boot" and what == STICKING:
            script.append(f"printf '[Manager]\\nNUMAPolicy=default\\n' > {LATER}")
    shell(lab, flavour.name, "set -e\n" + "\n".join(script))


def end_trouble(lab: Lab, flavour: Flavour, items: Sequence[tuple[Shown, WantedTuning]]) -> None:
    """Undo every trouble; a reboot may have undone some of it."""
    script = [f"rm -f {TOOL_FAULT} {LATER}"]
    for shown, item in items:
        if shown.way == "knob":
            for knob in knobs_of(lab, flavour, item):
                lab.inject(flavour.name, knob, None)
        elif shown.way == "read-only":
            script.append(f"umount {place_of(item)} 2>/dev/null")
        elif item.kind in FOUND_WRONG and shown.column == "refuses":
            script.append(f"({FOUND_WRONG[item.kind][2]}) 2>/dev/null")
    shell(lab, flavour.name, "\n".join([*script, ":"]))


def place_of(item: WantedTuning) -> str:
    """Where an item is written."""
    return sysctl_path(item.target) if item.kind == "sysctl" else PLACES[item.kind]


def knobs_of(lab: Lab, flavour: Flavour, item: WantedTuning) -> list[str]:
    """The simulated files behind an item."""
    if item.kind == "migration-cost":
        is_old = flavour.host.kernel == "sysctl"
        return [MIGRATION_COST_SYSCTL if is_old else MIGRATION_COST_DEBUGFS]
    if item.kind in ("sysfs", "choice"):
        return shell(lab, flavour.name, f"ls {item.target}").split()
    found = {
        "sysctl": [sysctl_path(item.target)],
        "reserved-ports": [RESERVED_PORTS],
        "nfs-read-ahead": [NFS_READ_AHEAD.format(NFS_DEVICE)],
        "pcie-acs": list(flavour.host.registers),
    }
    return found[item.kind]


def shell(lab: Lab, host: str, script: str) -> str:
    """What a script prints, which must end well."""
    done = lab.run(host, ["/bin/sh", "-c", script])
    assert done.returncode == 0, (script, done.stderr)
    return done.stdout.decode()
