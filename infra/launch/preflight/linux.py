"""What Linux and its tools print, read: interfaces, routes, memory, limits, clocks, container runtimes."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024
MIN_SWAP_FIELDS = 5
# kernel/hung_task.c
HUNG_TASK = re.compile(r"INFO: task \S.*?:(\d+) blocked for more than (\d+) seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One interface of `ip -j addr`."""

    name: str
    is_up: bool
    has_carrier: bool
    mtu: int
    addresses: tuple[str, ...]


def parse_interfaces(text: str) -> tuple[Interface, ...]:
    """The interfaces of `ip -j addr`, the loopback included; () for anything else."""
    found = []
    for entry in _json_list(text):
        if "ifname" not in entry:
            continue
        flags = entry.get("flags")
        listed = entry.get("addr_info")
        flags = flags if isinstance(flags, list) else []
        mtu = entry.get("mtu")
        found.append(
            Interface(
                name=str(entry.get("ifname")),
                is_up="UP" in flags,
                has_carrier="LOWER_UP" in flags,
                mtu=mtu if isinstance(mtu, int) else 0,
                addresses=tuple(
                    str(one["local"])
                    for one in (listed if isinstance(listed, list) else [])
                    if isinstance(one, Mapping) and "local" in one
                ),
            )
        )
    return tuple(found)


def parse_route(text: str) -> str | None:
    """The interface of `ip -j route get ADDRESS`."""
    entries = _json_list(text)
    return str(entries[0]["dev"]) if entries and "dev" in entries[0] else None


def parse_memory(text: str) -> dict[str, int]:
    """Bytes by name, of /proc/meminfo."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"(\w+):\s+(\d+) kB$", line.strip()):
            found[match[1]] = int(match[2]) * KIB
    return found


def parse_swaps(text: str) -> tuple[tuple[str, int], ...]:
    """(file or device, bytes) of each swap of /proc/swaps."""
    rows = [line.split() for line in text.splitlines()]
    return tuple(
        (row[0], int(row[2]) * KIB)
        for row in rows
        if len(row) >= MIN_SWAP_FIELDS and row[2].isdecimal()
    )


def parse_limits(text: str) -> dict[str, str]:
    """Soft limit by name, of /proc/PID/limits."""
    found = {}
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) > 2 and cells[0].startswith("Max "):  # noqa: PLR2004 - name, soft, hard
            found[cells[0]] = cells[1]
    return found


def parse_own_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `getent ahosts NAME`, each once, in order."""
    rows = [line.split() for line in text.splitlines()]
    return tuple(dict.fromkeys(row[0] for row in rows if row and _is_address(row[0])))


def parse_systemd_version(text: str) -> int | None:
    """The number of `systemctl --version`: `systemd 252 (252.39-1~deb12u2)`."""
    match = re.match(r"systemd (\d+)", text)
    return int(match[1]) if match else None


def parse_synchronised(text: str) -> bool | None:
    """What `timedatectl show -p NTPSynchronized` says."""
    match = re.search(r"^NTPSynchronized=(yes|no)$", text, re.MULTILINE)
    return None if match is None else match[1] == "yes"


def parse_chrony_offset(text: str) -> float | None:
    """Seconds between system time and chrony's, the fifth field of `chronyc -c tracking`."""
    fields = text.strip().split(",")
    try:
        return float(fields[4])
    except (IndexError, ValueError):
        return None


def parse_cgroup_driver(text: str) -> tuple[str, str] | None:
    """Driver and version of `docker info -f '{{.CgroupDriver}} {{.CgroupVersion}}'`."""
    words = text.split()
    is_one = len(words) == 2 and words[0] in ("systemd", "cgroupfs")  # noqa: PLR2004
    return (words[0], words[1]) if is_one else None


def parse_unit_states(text: str) -> dict[str, dict[str, str]]:
    """Properties by unit, of `systemctl show -p Id,LoadState,ActiveState UNIT…`."""
    found = {}
    for block in text.split("\n\n"):
        pairs = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if "Id" in pairs:
            found[pairs["Id"]] = pairs
    return found


def parse_hung_tasks(text: str) -> dict[int, int]:
    """Seconds that the kernel says a process was blocked at least, by process id, from its log; the longest counts."""
    found: dict[int, int] = {}
    for match in HUNG_TASK.finditer(text):
        found[int(match[1])] = max(int(match[2]), found.get(int(match[1]), 0))
    return found


def parse_kernel_lines(text: str) -> int:
    """How many lines the kernel's log has: `## 1203 lines` at the end of what was picked out of it; 0 without."""
    match = re.search(r"^## (\d+) lines\s*\Z", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def _json_list(text: str) -> list[Mapping[str, object]]:
    try:
        document = json.loads(text)
    except ValueError:
        return []
    return (
        [entry for entry in document if isinstance(entry, Mapping) and entry]
        if isinstance(document, list)
        else []
    )
