"""`amd-smi list|static|metric|process|version` and the little of `rocm-smi` that people still use.

Layout of amd-smi 25 (ROCm 6.4): a list with one entry per device, values with units as objects.
"""

from __future__ import annotations

import os

from .documents import format_document
from .host_state import (
    STANDIN_NOTICE,
    device_identifier,
    fault_of,
    present_devices,
    read_device_uses,
    read_host,
)
from .standin_options import BadOption, read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .host_state import DeviceUse

VERSION = "25.3.0"
ROCM_VERSION = "6.4.1"
COMMON_OPTIONS = {"--json": False, "--csv": False, "-g": True, "--gpu": True}
# Command → its own options
COMMANDS: dict[str, dict[str, bool]] = {
    "list": {},
    "version": {},
    "static": {
        "-a": False, "--asic": False, "-b": False, "--bus": False, "-d": False, "--driver": False,
        "-v": False, "--vram": False, "-p": False, "--partition": False, "-r": False, "--ras": False,
    },
    "metric": {
        "-m": False, "--mem-usage": False, "-u": False, "--usage": False, "-p": False, "--power": False,
        "-t": False, "--temperature": False, "-e": False, "--ecc": False,
    },
    "process": {},
}  # fmt: skip
ROCM_OPTIONS = {
    "--showid": False, "--showproductname": False, "--showmeminfo": True, "--showxgmierr": False,
    "--showpids": False, "--showdriverversion": False, "--json": False, "-i": False, "-d": True,
    "--version": False, "-V": False, "--setperfdeterminism": True, "-r": False,
}  # fmt: skip
GRAPHICS_VERSIONS = {"cdna3": "gfx942", "cdna4": "gfx950"}
IDLE_MEMORY_MIB = 283


def main(arguments: list[str]) -> int:
    """Do what `amd-smi` or `rocm-smi` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    host = read_host()
    if os.path.basename(arguments[0]) == "rocm-smi":
        return _run_rocm_smi(host, arguments[1:])
    words = arguments[1:]
    if not words or words[0] not in COMMANDS:
        text = f"AMDSMI: '{' '.join(words[:1])}' is not a recognized command. Error code: -1"
        os.write(2, f"{text}\n".encode())
        return 255
    command = words[0]
    try:
        options = read_options(words[1:], {**COMMON_OPTIONS, **COMMANDS[command]})
    except BadOption as error:
        os.write(2, f"Parameter '{error.word}' is invalid. Run '--help' for more info.\n".encode())
        return 254
    if command == "version":
        os.write(2, f"{STANDIN_NOTICE}\n".encode())
        document: Any = [{"tool": "AMDSMI Tool", "version": VERSION, "rocm_version": ROCM_VERSION}]
    else:
        choice = options.get("-g", options.get("--gpu", "all"))
        document = _describe(host, command, choice)
        if not document:
            os.write(2, f"Can not find a device: GPU '{choice}' Error code: -3\n".encode())
            return 253
    if "--json" in options:
        print(format_document(document, "    "))
    else:
        for entry in document:
            _print_entry(entry, 0)
    return 0


def _describe(host: dict[str, Any], command: str, choice: str) -> list[dict[str, Any]]:
    """Return one entry per chosen device."""
    uses = read_device_uses(host)
    wanted = choice.split(",")
    entries = []
    for index in present_devices(host):
        if choice != "all" and str(index) not in wanted:
            continue
        use = uses.get(index)
        describe = {
            "list": _list_entry,
            "static": _static_entry,
            "metric": _metric_entry,
            "process": _process_entry,
        }[command]
        entries.append(describe(host, index, use))
    return entries


def bus_id(index: int) -> str:
    """Return a device's address on the PCI bus."""
    return f"0000:{5 + 16 * index:02x}:00.0"


def _list_entry(host: dict[str, Any], index: int, _use: DeviceUse | None) -> dict[str, Any]:
    """Return what `list` tells."""
    return {
        "gpu": index,
        "bdf": bus_id(index),
        "uuid": device_identifier(host, index),
        "kfd_id": 40000 + index,
        "node_id": 2 + index,
        "partition_id": 0,
    }


def _static_entry(host: dict[str, Any], index: int, _use: DeviceUse | None) -> dict[str, Any]:
    """Return what `static` tells."""
    return {
        "gpu": index,
        "asic": {
            "market_name": host["product_name"],
            "vendor_id": "0x1002",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "asic_serial": f"0x{device_identifier(host, index)[:8]}",
            "oam_id": index,
            "num_compute_units": 304,
            "target_graphics_version": GRAPHICS_VERSIONS[host["generation"]],
        },
        "bus": {"bdf": bus_id(index), "max_pcie_width": 16, "max_pcie_speed": "32 GT/s"},
        "driver": {"name": "amdgpu", "version": host["driver_version"]},
        "vram": {
            "type": "HBM",
            "vendor": "SAMSUNG",
            "size": {"value": host["memory_mib"], "unit": "MB"},
        },
        "partition": {
            "accelerator_partition": host.get("accelerator_partition", "SPX"),
            "memory_partition": host.get("memory_partition", "NPS1"),
            "partition_id": 0,
        },
        "ras": {"eeprom_version": "0x10000", "ecc_block_state": "ENABLED"},
    }


def _metric_entry(host: dict[str, Any], index: int, use: DeviceUse | None) -> dict[str, Any]:
    """Return what `metric` tells."""
    used_mib = use.memory_mib if use else IDLE_MEMORY_MIB
    total_mib = host["memory_mib"]
    return {
        "gpu": index,
        "usage": {"gfx_activity": {"value": 0, "unit": "%"}},
        "power": {"socket_power": {"value": 138, "unit": "W"}},
        "temperature": {"hotspot": {"value": 41, "unit": "C"}, "mem": {"value": 36, "unit": "C"}},
        "ecc": {
            "total_correctable_count": 0,
            "total_uncorrectable_count": fault_of(host, "ecc_uncorrected", index, 0),
        },
        "mem_usage": {
            "total_vram": {"value": total_mib, "unit": "MB"},
            "used_vram": {"value": used_mib, "unit": "MB"},
            "free_vram": {"value": total_mib - used_mib, "unit": "MB"},
        },
    }


def _process_entry(_host: dict[str, Any], index: int, use: DeviceUse | None) -> dict[str, Any]:
    """Return what `process` tells."""
    if use is None:
        return {"gpu": index, "process_list": [{"process_info": "No running processes detected"}]}
    memory = {"value": use.memory_mib << 20, "unit": "B"}
    info = {"name": use.name, "pid": use.pid, "mem_usage": memory}
    return {"gpu": index, "process_list": [{"process_info": info}]}


def _print_entry(entry: dict[str, Any], depth: int) -> None:
    """Print an entry as indented text, names in capitals as amd-smi prints them."""
    for name, value in entry.items():
        text = "    " * depth + name.upper() + ":"
        if isinstance(value, dict) and set(value) == {"value", "unit"}:
            print(f"{text} {value['value']} {value['unit']}")
        elif isinstance(value, dict):
            print(text)
            _print_entry(value, depth + 1)
        elif isinstance(value, list):
            print(text)
            for item in value:
                _print_entry(item, depth + 1)
        else:
            print(f"{text} {value}")


def _run_rocm_smi(host: dict[str, Any], words: list[str]) -> int:
    """Do what `rocm-smi` was asked for."""
    try:
        options = read_options(words, ROCM_OPTIONS)
    except BadOption as error:
        text = f"rocm-smi: error: unrecognized arguments: {error.word}"
        os.write(2, f"usage: rocm-smi [-h] [-V] [-d DEVICE [DEVICE ...]] …\n{text}\n".encode())
        return 2
    if "--version" in options or "-V" in options:
        print(f"ROCM-SMI version: 3.0.0+{STANDIN_NOTICE}\nROCM-SMI-LIB version: 7.5.0")
        return 0
    uses = read_device_uses(host)
    cards = {
        f"card{index}": _rocm_card(host, options, uses.get(index))
        for index in present_devices(host)
    }
    if "--showdriverversion" in options:
        cards["system"] = {"Driver version": host["driver_version"]}
    if "--json" in options:
        print(format_document(cards))
        return 0
    print(
        "\n\n============================ ROCm System Management Interface ============================"
    )
    for name, card in cards.items():
        for key, value in card.items():
            label = f"GPU[{name[4:]}]" if name.startswith("card") else name
            print(f"{label}\t\t: {key}: {value}")
    print(
        "================================== End of ROCm SMI Log ==================================="
    )
    return 0


def _rocm_card(
    host: dict[str, Any], options: dict[str, str], use: DeviceUse | None
) -> dict[str, str]:
    """Return what `rocm-smi` tells of one device."""
    card: dict[str, str] = {}
    if "--showid" in options or "-i" in options:
        card["Device Name"] = host["product_name"]
        card["Device ID"] = "0x74a1"
    if "--showproductname" in options:
        card["Card Series"] = host["product_name"]
        card["GFX Version"] = GRAPHICS_VERSIONS[host["generation"]]
    if options.get("--showmeminfo") == "vram":
        used = use.memory_mib if use else IDLE_MEMORY_MIB
        card["VRAM Total Memory (B)"] = str(host["memory_mib"] << 20)
        card["VRAM Total Used Memory (B)"] = str(used << 20)
    if "--showxgmierr" in options:
        card["XGMI Error count"] = "0"
    return card
