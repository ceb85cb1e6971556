"""What Ascend's tools print, read: devices, health, processes, the super-pod, each device's own network."""

from __future__ import annotations

import re
from dataclasses import dataclass

DRIVER_FILE = "/usr/local/Ascend/driver/version.info"
HCCN_TOOL = "/usr/local/Ascend/driver/tools/hccn_tool"
USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")
# `-ping` writes "packet loss", `-hccs_ping` "packets loss" (tool_ping_printf of hccn_tool, hicann/driver@0535417).
PACKET_LOSS = re.compile(r"(\d+(?:\.\d+)?)% packets? loss")
STATISTIC = re.compile(r"^\s*(\w+)\s*:\s*(\d+)\s*$", re.MULTILINE)
LINK_DOWN = re.compile(r"\bLINK DOWN\s*$", re.MULTILINE)
GATEWAY = r"default gateway:[ \t]*([^\s,]+)"
# What hccn_tool says of a gateway or an address that is not set, and leaves with another code than 0 (its source:
# hccn_tool/src/cmd.c of hicann/driver@999c25d; the 950's tool there says the same).
NO_GATEWAY = "no gateway was preset"
NO_ADDRESS = "no ip was preset"
NOT_ASKED = "Init"  # a network's health without an address to ask
DETECTION = r"netdetect address:[ \t]*(\S+)"
NOT_SET = "0.0.0.0"  # noqa: S104 - an address that is told, none that is bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Npu:
    """One device of `npu-smi info`."""

    card: int
    chip: int
    name: str
    health: str
    memory_mib: int
    bus_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuProcess:
    """A process that uses a device."""

    card: int
    chip: int
    pid: int
    name: str


def parse_devices(text: str) -> tuple[Npu, ...]:
    """The devices of the table that `npu-smi info` prints: two lines each, card first, chip below."""
    found: list[Npu] = []
    head: tuple[int, str, str] | None = None
    for cells in _table(text):
        first = cells[0].split()
        if "Process id" in cells[1] or (len(cells) > 2 and "Process name" in cells[2]):  # noqa: PLR2004
            break
        if len(first) < 1 or not first[0].isdecimal():
            continue
        if len(first) > 1 and not first[1].isdecimal():
            head = (int(first[0]), first[1], cells[1])
        elif head is not None:
            usages = USAGE.findall(cells[-1])
            memory = int(usages[-1][1]) if usages else 0
            card, name, health = head
            found.append(
                Npu(
                    card=card,
                    chip=int(first[0]),
                    name=name,
                    health=health,
                    memory_mib=memory,
                    bus_id=cells[1],
                )
            )
            head = None
    return tuple(found)


def parse_processes(text: str) -> tuple[NpuProcess, ...]:
    """The processes of the table below the devices."""
    found: list[NpuProcess] = []
    is_below = False
    for cells in _table(text):
        if "Process id" in cells[1]:
            is_below = True
        elif is_below and len(cells) > 2 and cells[1].isdecimal():  # noqa: PLR2004 - place, id, name
            place = cells[0].split()
            card = int(place[0]) if place and place[0].isdecimal() else 0
            chip = int(place[1]) if len(place) > 1 and place[1].isdecimal() else 0
            found.append(NpuProcess(card=card, chip=chip, pid=int(cells[1]), name=cells[2]))
    return tuple(found)


def shows_processes(text: str) -> bool:
    """Whether `npu-smi info` printed the table of processes: its head is there without a process, too."""
    return any("Process id" in cells[1] for cells in _table(text))


def parse_super_pod(text: str) -> int | None:
    """The super-pod's number of `npu-smi info -t spod-info`; None for anything else."""
    told = parse_pairs(text).get("Super Pod ID", "")
    return int(told) if told.isdecimal() else None


def parse_pairs(text: str) -> dict[str, str]:
    """The `key : value` lines of one topic of npu-smi; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            found.setdefault(name.strip(), value.strip())
    return found


def parse_driver_file(text: str) -> str | None:
    """The driver's version in version.info."""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == "Version":
            return value.strip() or None
    return None


def parse_link(text: str) -> str | None:
    """`UP` or `DOWN` of `hccn_tool -link -g`."""
    return _after(text, r"link status:[ \t]*(\S+)")


def parse_health(text: str) -> str | None:
    """The words of `hccn_tool -net_health -g`, `Success` when all is well."""
    return _after(text, r"net health status:[ \t]*(\S.*?)[ \t]*$")


def parse_tls(text: str) -> str | None:
    """`0` or `1`, the switch of `hccn_tool -tls -g`; releases write it with brackets or a colon."""
    return _after(text, r"tls switch\s*[\[:]\s*(\d)")


def parse_address(text: str) -> str | None:
    """The address of `hccn_tool -ip -g`, or of `-vnic -g`."""
    return _after(text, r"ipaddr:[ \t]*(\S+)")


def shows_address(text: str) -> bool:
    """Whether that was answered: with an address, or that there is none."""
    return parse_address(text) is not None or NO_ADDRESS in text


def parse_mask(text: str) -> str | None:
    """The netmask of `hccn_tool -ip -g`."""
    return _after(text, r"netmask:[ \t]*(\S+)")


def parse_gateway(text: str) -> str | None:
    """The gateway of `hccn_tool -gateway -g`: `default gateway:192.0.2.1, Iface:eth0`; None without one."""
    found = _after(text, GATEWAY)
    return None if found == NOT_SET else found


def shows_gateway(text: str) -> bool:
    """Whether that was answered: with a gateway, or that there is none."""
    return _after(text, GATEWAY) is not None or NO_GATEWAY in text


def parse_detection(text: str) -> str | None:
    """The address that a device asks to see whether its network is healthy, of `-netdetect -g`; None without one."""
    found = _after(text, DETECTION)
    return None if found == NOT_SET else found


def shows_detection(text: str) -> bool:
    """Whether that was answered: with an address, or that there is none."""
    return _after(text, DETECTION) is not None


def parse_statistics(text: str) -> dict[str, int]:
    """The `name:number` lines of `hccn_tool -stat -g`."""
    return {name: int(number) for name, number in STATISTIC.findall(text)}


def parse_link_downs(text: str) -> int | None:
    """How often a link went down since the device started, of `hccn_tool -link_stat -g`; None for anything else.

    Drivers before 24 count only the times that it came up; the records below show the latest changes.
    """
    counted = _after(text, r"link down count[ \t]*:[ \t]*(\d+)")
    if counted is not None:
        return int(counted)
    return len(LINK_DOWN.findall(text)) if "link up count" in text else None


def parse_loss(text: str) -> float | None:
    """Lost packets of `hccn_tool -ping -g`, or of `-hccs_ping -g`, in percent; None for anything else."""
    match = PACKET_LOSS.search(text)
    return float(match[1]) if match else None


def _after(text: str, pattern: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return match[1] if match else None


def _table(text: str) -> list[list[str]]:
    """The cells of every row between bars that has more than one."""
    rows = []
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) > 1:
                rows.append(cells)
    return rows
