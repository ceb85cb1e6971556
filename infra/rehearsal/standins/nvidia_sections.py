"""Sections of `nvidia-smi -q` that say how a GPU is: its firmware, its clocks, its NVLink fabric; and its links.

Written from the manual of driver 580.
"""

from __future__ import annotations

from .host_state import fault, fault_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VBIOS = "97.00.A5.00.01"
LINKS_PER_GPU = 18
LINK_ERRORS = ("Replay", "Recovery", "CRC")
LINK_SPEEDS = {"hopper": "26.562", "blackwell": "53.125"}
HARDWARE_REASONS = (
    (2, "HW Slowdown"), (3, "HW Thermal Slowdown"), (3, "HW Power Brake Slowdown"), (2, "SW Thermal Slowdown"),
)  # fmt: skip


def vbios(host: dict[str, Any], index: int) -> str:
    """Return the version of a GPU's VBIOS."""
    return str(fault_of(host, "vbios", index, VBIOS))


def clock_rows(host: dict[str, Any], index: int) -> list[tuple[int, str, str]]:
    """Return the reasons of the clocks; `faults.held_clocks` {gpu: reason} makes one of the hardware's active."""
    held = fault_of(host, "held_clocks", index, "")
    rows = [(2, "Idle", "Not Active" if held else "Active"), (2, "SW Power Cap", "Not Active")]
    for depth, name in HARDWARE_REASONS:
        rows.append((depth, name, "Active" if name == held else "Not Active"))
    return rows


def fabric(host: dict[str, Any]) -> dict[str, str]:
    """Return the fabric section of `-q`: state, status, clique and cluster."""
    given = host.get("fabric") or {}
    state = fault(host, "fabric_state") or given.get("state", "N/A")
    absent = "N/A" if state == "N/A" else "0"
    return {
        "State": state,
        "Status": "Success" if state == "Completed" else "N/A",
        "CliqueId": str(given.get("clique_id", absent)),
        "ClusterUUID": str(
            given.get("cluster_uuid")
            or ("N/A" if state == "N/A" else "00000000-0000-0000-0000-000000000000")
        ),
    }


def link_lines(host: dict[str, Any], index: int, *, is_status: bool) -> list[str]:
    """Return what `nvlink -s` says of a GPU's links, else what `-e` does."""
    speed, lines = LINK_SPEEDS[host["generation"]], []
    inactive = fault_of(host, "nvlink_inactive", index, [])
    for link in range(LINKS_PER_GPU):
        if is_status:
            state = "<inactive>" if link in inactive else f"{speed} GB/s"
            lines.append(f"\t Link {link}: {state}")
        elif link not in inactive:
            lines += [f"\t Link {link}: {name} Errors: 0" for name in LINK_ERRORS]
    return lines
