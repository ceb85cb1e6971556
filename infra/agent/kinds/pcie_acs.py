"""PCIe access control services of bridges: with them on, transfers between devices detour through the root complex.

The bits are read and written in the bridges' configuration space as sysfs shows it, which needs no lspci and no
setpci. Source: PCI Express Base Specification 5.0, 7.7.8 (ACS extended capability 0x000D, control register at 6);
Linux include/uapi/linux/pci_regs.h (read 2026-11-21).
"""

import glob
import os
import struct
from typing import NamedTuple, Optional

from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading

DEVICES = "/sys/bus/pci/devices"
CLASS = 0x0A
BRIDGE = b"\x04\x06"  # subclass, class
EXTENDED = 0x100
ACS = 0x000D
CONTROL = 6
MAX_CAPABILITIES = 96


class Control(NamedTuple):
    """A bridge's control register: where it lies in the configuration space, and its bits."""

    offset: int
    bits: int


def read_acs(host: Host, item: Item) -> Reading:
    """The control register of every bridge that has one, as `0x001d`."""
    parts: Parts = {}
    for path in sorted(glob.glob(host.path(DEVICES) + "/*/config")):
        control = find_control(_config(path))
        if control is not None:
            parts[os.path.basename(os.path.dirname(path))] = _word(control.bits)
    if not parts:
        return absent_reading(item, "no bridge of this host has access control services")
    if item.want is None:
        return Reading(_shown(parts), parts, None, {})
    try:
        bits = int(item.want, 0)
    except ValueError as error:
        raise Refused("{!r} is no value of a control register".format(item.want)) from error
    wanted: Parts = dict.fromkeys(parts, _word(bits))
    return Reading(_shown(parts), parts, _word(bits), wanted)


def write_acs(host: Host, _item: Item, part: str, value: object) -> None:
    """Write one bridge's control register, and nothing beside it."""
    path = "{}/{}/config".format(DEVICES, part)
    control = find_control(_config(host.path(path)))
    if control is None:
        raise Refused("{} has no access control services any more".format(part))
    host.write_at(path, control.offset, struct.pack("<H", int(str(value), 0)))


def find_control(config: bytes) -> Optional[Control]:
    """The control register in a configuration space; None where there is none, or no bridge."""
    if config[CLASS : CLASS + 2] != BRIDGE:
        return None
    offset = EXTENDED
    for _ in range(MAX_CAPABILITIES):
        if not EXTENDED <= offset <= len(config) - (CONTROL + 2):
            return None
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == ACS:
            (bits,) = struct.unpack_from("<H", config, offset + CONTROL)
            return Control(offset + CONTROL, bits)
        offset = header >> 20 & 0xFFC
    return None


def _config(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _word(bits: int) -> str:
    return "0x{:04x}".format(bits)


def _shown(parts: Parts) -> str:
    values = list(map(str, parts.values()))
    distinct = sorted(set(values))
    if len(distinct) == 1:
        return distinct[0]
    return ", ".join("{} ×{}".format(value, values.count(value)) for value in distinct)
