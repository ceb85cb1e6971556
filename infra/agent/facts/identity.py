"""The operation `identity`: what kind of host this is, as far as a tuning profile asks."""

import glob
import os
from typing import Dict, List

from ..host import Host

CPU_INFO = "/proc/cpuinfo"
KERNEL_ARCHITECTURE = "/proc/sys/kernel/arch"
PCI_DEVICES = "/sys/bus/pci/devices/*"
DEVICE_FILES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/davinci[0-9]*")
DRIVERS = (
    "/proc/driver/nvidia/version",
    "/sys/module/amdgpu",
    "/usr/local/Ascend/driver/version.info",
)
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, other display, accelerator


def answer(_request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Architecture, processor, whether it is virtual, and which accelerators show."""
    return {
        "schema_version": 1,
        "architecture": _architecture(host),
        **processor(_text(host, CPU_INFO)),
        "pci_devices": _pci_devices(host),
        "device_files": _matching(host, DEVICE_FILES),
        "drivers": [path for path in DRIVERS if host.exists(path)],
    }


def processor(text: str) -> Dict[str, object]:
    """Maker, part and virtuality of the first processor of /proc/cpuinfo.

    The kernel sets the flag `hypervisor` on x86 alone; other architectures do not say.
    """
    first: Dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            first.setdefault(key.strip(), value.strip())
    return {
        "cpu_implementer": first.get("CPU implementer", ""),
        "cpu_part": first.get("CPU part", ""),
        "cpu_vendor": first.get("vendor_id", ""),
        "is_virtual": "hypervisor" in first.get("flags", "").split(),
    }


def _architecture(host: Host) -> str:
    """The kernel's own word where it has one (since Linux 6.1), else that of uname(2)."""
    return _text(host, KERNEL_ARCHITECTURE).strip() or os.uname().machine


def _pci_devices(host: Host) -> List[str]:
    """Vendor and class of everything that may be an accelerator, each pair once: `0x10de 0x0302`."""
    found = set()
    for folder in glob.glob(host.path(PCI_DEVICES)):
        place = folder[len(host.root) :]
        kind = _text(host, place + "/class").strip()[:6]
        if kind in CLASSES:
            found.add("{} {}".format(_text(host, place + "/vendor").strip(), kind))
    return sorted(found)


def _matching(host: Host, patterns: "tuple[str, ...]") -> List[str]:
    found: List[str] = []
    for pattern in patterns:
        found += [path[len(host.root) :] for path in sorted(glob.glob(host.path(pattern)))]
    return found


def _text(host: Host, path: str) -> str:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""
