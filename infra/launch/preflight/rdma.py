"""The HCA ports of a host, read from what sysfs says under /sys/class/infiniband."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

FOLDER = "/sys/class/infiniband"
# Sixteen GIDs are what show_gids lists of a port with a few addresses and VLANs.
FILES = (
    f"{FOLDER}/*/device/vendor",
    *(
        f"{FOLDER}/*/device/{end}_link_{what}"
        for end in ("current", "max")
        for what in ("width", "speed")
    ),
    *(
        f"{FOLDER}/*/ports/*/{name}"
        for name in (
            "state",
            "phys_state",
            "rate",
            "link_layer",
            "gids/?",
            "gids/1?",
            "gid_attrs/types/?",
            "gid_attrs/types/1?",
            "counters/link_downed",
            "counters/symbol_error",
            "counters/port_rcv_data",
        )
    ),
)
PLACE = re.compile(rf"^{FOLDER}/([^/]+)/ports/(\d+)/(.+)$")
MAPPED = re.compile(r"^(0000:){5}ffff:")
EMPTY = {"", "0000:0000:0000:0000:0000:ffff:0000:0000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of an HCA.

    Args:
        name: `device:port`, as UCX and NCCL spell it.
        state: `ACTIVE`, `DOWN`, …
        physical_state: `LinkUp`, `Polling`, …
        rate: as the kernel writes it, e.g. `400 Gb/sec (4X NDR)`.
        link_layer: `InfiniBand`, `Ethernet`, or `Unspecified` (EFA).
        gid_index: of the first RoCE v2 GID that holds an IPv4 address, None without one.
    """

    name: str
    state: str
    physical_state: str
    rate: str
    link_layer: str
    gid_index: int | None

    @property
    def is_active(self) -> bool:
        """Whether it carries traffic."""
        return self.state == "ACTIVE" and self.physical_state == "LinkUp"

    @property
    def rate_gbps(self) -> float:
        """The number in `rate`, Gbit/s; 0 when there is none."""
        match = re.match(r"([\d.]+)", self.rate)
        return float(match[1]) if match else 0.0


def read_ports(files: Mapping[str, str]) -> tuple[Port, ...]:
    """Every port among the files of a host, by name."""
    found: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        if (match := PLACE.match(path)) and not match[3].startswith("counters/"):
            found.setdefault(f"{match[1]}:{match[2]}", {})[match[3]] = text.strip()
    return tuple(_port(name, values) for name, values in sorted(found.items()))


def rails(ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """The active ports of the highest rate: the fabric is faster than the management network."""
    usable = [p for p in ports if p.is_active and p.link_layer in ("InfiniBand", "Ethernet")]
    fastest = max((port.rate_gbps for port in usable), default=0.0)
    return tuple(port for port in usable if port.rate_gbps == fastest)


def _port(name: str, values: Mapping[str, str]) -> Port:
    return Port(
        name=name,
        state=_word(values.get("state", "")),
        physical_state=_word(values.get("phys_state", "")),
        rate=values.get("rate", ""),
        link_layer=values.get("link_layer", ""),
        gid_index=_gid_index(values),
    )


def _gid_index(values: Mapping[str, str]) -> int | None:
    for index in range(20):
        gid = values.get(f"gids/{index}", "")
        is_v2 = values.get(f"gid_attrs/types/{index}") == "RoCE v2"
        if is_v2 and MAPPED.match(gid) and gid not in EMPTY:
            return index
    return None


def _word(text: str) -> str:
    """The state behind its number: `4: ACTIVE`."""
    return text.partition(":")[2].strip() or text
