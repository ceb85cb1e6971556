"""What tells how well a RoCE or InfiniBand link carries: priorities, flow control, bit errors, lanes of its slot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from infra.launch.preflight.rdma import FOLDER

# Asked of every card's interface in one command each; a host without the tool answers nothing.
QOS_QUESTION = (
    "command -v mlnx_qos >/dev/null || exit 127; for i in /sys/class/infiniband/*/device/net/*; do "
    '[ -e "$i" ] && echo "## ${i##*/}" && mlnx_qos -i "${i##*/}"; done; true'
)
# mlxlink takes a second or two a card.
BER_QUESTION = (
    "command -v mlxlink >/dev/null || exit 127; for d in /sys/class/infiniband/*; do "
    '[ -e "$d" ] && echo "## ${d##*/}" && mlxlink -d "${d##*/}" -c; done; true'
)
# Of the hundreds of counters, per queue too, those that tell of the wire and of lossless priorities.
COUNTERS_QUESTION = (
    "command -v ethtool >/dev/null || exit 127; for i in /sys/class/infiniband/*/device/net/*; do "
    '[ -e "$i" ] && echo "## ${i##*/}" && ethtool -S "${i##*/}" | '
    "grep -E '_phy:|rx_prio[0-7]_[a-z]+_discard:|pause_storm'; done; true"
)
SECTION = re.compile(r"^## (\S+)\n", re.MULTILINE)
DSCPS = re.compile(r"^\s*prio:(\d) dscp:([\d,\s]*)$", re.MULTILINE)
TRUST = re.compile(r"^Priority trust state:\s*(\w+)", re.MULTILINE)
ENABLED = re.compile(r"^\s*enabled((?:\s+[01]){8})\s*$", re.MULTILINE)
BIT_ERRORS = re.compile(r"^Effective Physical BER\s*:\s*(\d+)E-(\d+)", re.MULTILINE)
COUNTER = re.compile(r"^\s*(\w+)\s*:\s*(\d+)\s*$", re.MULTILINE)
SLOT = re.compile(rf"^{FOLDER}/([^/]+)/device/(current|max)_link_(width|speed)$")
UNKNOWN_WIDTHS = (0, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """How an interface tells classes of packets apart.

    Args:
        trust: what it goes by: `dscp` or `pcp`.
        lossless: priorities with flow control (PFC).
        by_dscp: priority by DSCP; {} where it does not go by that.
    """

    trust: str
    lossless: tuple[int, ...]
    by_dscp: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The PCIe slot of a card: lanes, and GT/s of each; None where the kernel does not know (virtual functions)."""

    name: str
    width: int | None
    most_width: int | None
    speed_gts: float | None
    most_speed_gts: float | None


def parse_sections(text: str) -> dict[str, str]:
    """What was told of each interface or card, by name: the text behind its `## name`."""
    parts = SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def parse_priorities(text: str) -> Priorities | None:
    """What `mlnx_qos -i INTERFACE` shows; None for anything else."""
    trust, lossless = TRUST.search(text), parse_flow_control(text)
    if trust is None or lossless is None:
        return None
    by_dscp = {
        int(dscp): int(match[1])
        for match in DSCPS.finditer(text)
        for dscp in match[2].split(",")
        if dscp.strip().isdecimal()
    }
    return Priorities(trust=trust[1], lossless=lossless, by_dscp=by_dscp)


def parse_flow_control(text: str) -> tuple[int, ...] | None:
    """The priorities with flow control of `mlnx_qos`, and of `hccn_tool -pfc -g`; None for anything else."""
    match = ENABLED.search(text)
    if match is None:
        return None
    return tuple(place for place, word in enumerate(match[1].split()) if word == "1")


def parse_bit_error_exponent(text: str) -> int | None:
    """N of the rate that `mlxlink -c` counts behind error correction, `3E-N`; None for anything else."""
    match = BIT_ERRORS.search(text)
    return int(match[2]) if match else None


def parse_counters(text: str) -> dict[str, int]:
    """The `name: number` lines of `ethtool -S`."""
    return {name: int(number) for name, number in COUNTER.findall(text)}


def parse_speed(text: str) -> float | None:
    """GT/s of `32.0 GT/s PCIe`, as sysfs writes a slot's speed; None for `Unknown`."""
    match = re.match(r"([\d.]+) GT/s", text.strip())
    return float(match[1]) if match else None


def parse_width(text: str) -> int | None:
    """Lanes of a slot, as sysfs writes them; None for what stands for unknown."""
    word = text.strip()
    return int(word) if word.isdecimal() and int(word) not in UNKNOWN_WIDTHS else None


def read_slots(files: Mapping[str, str]) -> tuple[Slot, ...]:
    """The slot of every RDMA card among the files of a host, by name."""
    found: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        if match := SLOT.match(path):
            found.setdefault(match[1], {})[f"{match[2]}_{match[3]}"] = text
    return tuple(
        Slot(
            name=name,
            width=parse_width(texts.get("current_width", "")),
            most_width=parse_width(texts.get("max_width", "")),
            speed_gts=parse_speed(texts.get("current_speed", "")),
            most_speed_gts=parse_speed(texts.get("max_speed", "")),
        )
        for name, texts in sorted(found.items())
    )
