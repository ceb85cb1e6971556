"""What AMD's tools print, read: devices, processes, memory errors, XGMI errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

DEVICES = "/sys/module/amdgpu/drivers/pci:amdgpu"
# What sysfs tells of each device: a tool's own words for it change between releases.
FILES = (f"{DEVICES}/*/vbios_version", f"{DEVICES}/*/current_link_width")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """One device of `amd-smi static --json`; texts as printed, empty for what is not there."""

    index: int
    name: str
    bus_id: str
    memory_mib: int
    driver: str
    pcie_width: int | None
    compute_partition: str
    memory_partition: str


def parse_static(text: str) -> tuple[AmdGpu, ...]:
    """The devices; () for anything else.

    ROCm 6 prints a list, later releases a map with the list under `gpu_data`.
    """
    return tuple(
        AmdGpu(
            index=gpu,
            name=_text(entry, "asic", "market_name"),
            bus_id=_text(entry, "bus", "bdf"),
            memory_mib=_size(entry, "vram", "size"),
            driver=_text(entry, "driver", "version"),
            pcie_width=_whole(_part(entry, "bus", "max_pcie_width")),
            compute_partition=_text(entry, "partition", "accelerator_partition")
            or _text(entry, "partition", "compute_partition"),
            memory_partition=_text(entry, "partition", "memory_partition"),
        )
        for entry in _entries(text)
        if (gpu := _whole(entry.get("gpu"))) is not None
    )


def parse_uncorrected(text: str) -> dict[int, int]:
    """Uncorrectable memory errors by device, from `amd-smi metric --ecc --json`.

    amd-smi writes `N/A` for what it could not read: such a device is left out.
    """
    return {
        gpu: count
        for entry in _entries(text)
        if (gpu := _whole(entry.get("gpu"))) is not None
        and (count := _whole(_part(entry, "ecc", "total_uncorrectable_count"))) is not None
    }


def count_partitions(text: str) -> int:
    """Of how many devices `amd-smi static` tells how they are split."""
    return sum(bool(gpu.compute_partition and gpu.memory_partition) for gpu in parse_static(text))


def parse_asked_devices(text: str) -> frozenset[int]:
    """The devices of which `amd-smi process` tells who uses them, and be it nobody."""
    found = set()
    for entry in _entries(text):
        gpu, processes = _whole(entry.get("gpu")), entry.get("process_list")
        if gpu is not None and isinstance(processes, list) and all(map(_is_process, processes)):
            found.add(gpu)
    return frozenset(found)


def count_xgmi(text: str) -> int:
    """Of how many cards `rocm-smi --showxgmierr` tells a count of errors."""
    return sum(_xgmi_count(card) is not None for card in _cards(text).values())


def parse_processes(text: str) -> tuple[tuple[int, int], ...]:
    """(device, process id) of every process in `amd-smi process --json`."""
    found = []
    for entry in _entries(text):
        gpu, listed = _whole(entry.get("gpu")), entry.get("process_list")
        for process in listed if isinstance(listed, list) else []:
            info = process.get("process_info") if isinstance(process, Mapping) else None
            pid = _whole(info.get("pid")) if isinstance(info, Mapping) else None
            if gpu is not None and pid is not None:
                found.append((gpu, pid))
    return tuple(found)


def parse_xgmi_errors(text: str) -> dict[str, int]:
    """XGMI error counts above zero by card, from `rocm-smi --showxgmierr --json`."""
    return {name: count for name, card in _cards(text).items() if (count := _xgmi_count(card))}


def _cards(text: str) -> dict[str, object]:
    """What rocm-smi says of each card; {} for anything else."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    named = document.items() if isinstance(document, Mapping) else ()
    return {str(name): card for name, card in named if str(name).startswith("card")}


def _xgmi_count(card: object) -> int | None:
    return _whole(card.get("XGMI Error count")) if isinstance(card, Mapping) else None


def _is_process(entry: object) -> bool:
    """A process, or the words that there is none."""
    info = entry.get("process_info") if isinstance(entry, Mapping) else None
    if isinstance(info, Mapping):
        return _whole(info.get("pid")) is not None
    return isinstance(info, str) and info.startswith("No running processes")


def _entries(text: str) -> list[Mapping[str, object]]:
    try:
        document = json.loads(text)
    except ValueError:
        return []
    listed = document.get("gpu_data") if isinstance(document, Mapping) else document
    rows = listed if isinstance(listed, list) else []
    return [entry for entry in rows if isinstance(entry, Mapping)]


def _part(entry: Mapping[str, object], section: str, key: str) -> object:
    inner = entry.get(section)
    return inner.get(key) if isinstance(inner, Mapping) else None


def _text(entry: Mapping[str, object], section: str, key: str) -> str:
    value = _part(entry, section, key)
    return "" if value in (None, "N/A") else str(value)


def _size(entry: Mapping[str, object], section: str, key: str) -> int:
    """MiB of a value with its unit; AMD writes MB and means MiB."""
    value = _part(entry, section, key)
    inner = value.get("value") if isinstance(value, Mapping) else value
    return _whole(inner) or 0


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() else None
