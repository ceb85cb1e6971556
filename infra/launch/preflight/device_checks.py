"""Who has the device files of accelerators open: what a stack needs of them, and who may."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.preflight.observed import Holder
from infra.launch.preflight.scene import Scene, Trouble

# They keep device files open on every host that has them, and compute nothing (their own documentation).
DEVICE_DAEMONS = (
    "nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "nvidia-imex", "nvidia-smi", "dcgm-exporter",
    "nvsm_core", "nvidia-ctk", "npu-exporter", "amd-smi", "rocm-smi", "npu-smi", "Xorg",
)  # fmt: skip
DEVICE_FILES = {"nvidia": "/dev/nvidia{index}", "ascend": "/dev/davinci{index}", "amd": "/dev/kfd"}


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
