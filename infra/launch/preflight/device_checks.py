"""Who has the device files of accelerators open, and what lies between the devices of a host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.launch.preflight.observed import Holder
from infra.launch.preflight.scene import Scene, Trouble, drained_tuning

# They keep device files open on every host that has them, and compute nothing (their own documentation).
DEVICE_DAEMONS = (
    "nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "nvidia-imex", "nvidia-smi", "dcgm-exporter",
    "nvsm_core", "nvidia-ctk", "npu-exporter", "amd-smi", "rocm-smi", "npu-smi", "Xorg",
)  # fmt: skip
DEVICE_FILES = {"nvidia": "/dev/nvidia{index}", "ascend": "/dev/davinci{index}", "amd": "/dev/kfd"}


ACS_ID = "pcie.acs"
# P2P request redirect, P2P completion redirect, upstream forwarding (PCI Express Base Specification 5.0, 7.7.8.3).
REDIRECTS = 0x001C


def find_held_devices(scene: Scene) -> Iterator[Trouble]:
    """Devices of processes that do not run yet, held by somebody."""
    for name in scene.engine_hosts:
        files = awaited_device_files(scene, name)
        for holder in scene.hosts[name].holders:
            if holder.device not in files or is_device_daemon(holder):
                continue
            waits, whose = files[holder.device], holder_words(holder)
            yield Trouble(
                host=name,
                severity="block",
                observed=f"{holder.device}, which {waits} needs, is held by process {holder.pid} ({whose})",
                fix=f"Stop it on {name}: ssh {name} sudo kill {holder.pid}",
            )


def awaited_devices(scene: Scene, host: str) -> dict[int, str]:
    """The devices that processes which do not run yet will use, each with its process."""
    ours = {device for process in scene.ours.get(host, ()) for device in process.devices}
    return {
        index: process.id
        for process in scene.waiting(host)
        for index in process.devices
        if index not in ours
    }


def awaited_device_files(scene: Scene, host: str) -> dict[str, str]:
    """The device files of those devices, each with a process that will open it."""
    pattern = DEVICE_FILES.get(scene.accelerator(host).vendor)
    awaited = awaited_devices(scene, host)
    if pattern is None:
        return {}
    if "{index}" not in pattern and len(awaited) < scene.plan.host(host).num_devices:
        return {}  # one file for all devices: whoever holds it may use the others
    return {pattern.format(index=index): process for index, process in awaited.items()}


def is_device_daemon(holder: Holder) -> bool:
    """Whether a holder only watches devices."""
    program = holder.command.split(" ")[0].rpartition("/")[2]
    return program in DEVICE_DAEMONS


def holder_words(holder: Holder) -> str:
    """Its command and its unit."""
    unit = holder.control_group.rstrip("/").rpartition("/")[2]
    return f"{holder.command or 'no command'}; {unit}" if unit else holder.command


def switched_hosts(scene: Scene) -> tuple[str, ...]:
    """Hosts of several devices whose tuning profile knows how to turn access control off: bare metal with switches."""
    item = next((i for i in scene.catalog.tuning(scene.plan.tuning).items if i.id == ACS_ID), None)
    if item is None or item.opt_in is None:
        return ()
    return tuple(h for h in scene.engine_hosts if scene.plan.host(h).num_devices > 1)


def find_access_control(scene: Scene) -> Iterator[Trouble]:
    """Hosts with bridges whose access control redirects: transfers between devices take a detour, or hang."""
    for name in switched_hosts(scene):
        row = scene.hosts[name].items.get(ACS_ID, {})
        found = [
            int(word, 16) for word in re.findall(r"0x[0-9a-f]{4}", str(row.get("before") or ""))
        ]
        if any(bits & REDIRECTS for bits in found):
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"bridges have access control on ({row.get('before')})",
                fix=f"Where no device is passed through to a guest, add tuning.enable: [{ACS_ID}] to the stack; "
                f"{drained_tuning(scene)}.",
            )
