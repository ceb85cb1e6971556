"""`mlnx_qos -i INTERFACE`, `mlxlink -d CARD -c` and `ethtool -S INTERFACE` of a simulated host's RoCE cards.

Written from NVIDIA's pages on mlnx_qos and mlxlink (MLNX_OFED 23.10, MFT 4.22) and from the kernel's list of mlx5's
counters; of each long output those parts that tell something here.
"""

from __future__ import annotations

import os

from .host_state import STANDIN_NOTICE, fault, read_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUM_PRIORITIES = 8
DSCPS_PER_PRIORITY = 8
LOSSLESS = 3
CARDS = "/sys/class/infiniband"
INTERFACES = "/sys/class/net"
EXIT_BAD_OPTION = 1
EXIT_NO_STRINGS = 96


def main(arguments: list[str]) -> int:
    """Do what one of the three tools was asked for.

    Args:
        arguments: as in `sys.argv`; the program's name says which.
    """
    host, words = read_host(), arguments[1:]
    program = os.path.basename(arguments[0])
    if len(words) > 1 and not any(
        os.path.exists(f"{each}/{words[1]}") for each in (CARDS, INTERFACES)
    ):
        return _refuse_name(program, words[1])
    if program == "mlnx_qos" and words[:1] == ["-i"] and len(words) == len(("-i", "IF")):
        return _print_lines(_priorities(host, words[1]))
    if program == "mlxlink" and words[:1] == ["-d"] and words[2:] == ["-c"]:
        return _print_lines(_bit_errors(host, words[1]))
    if program == "ethtool" and words[:1] == ["-S"] and len(words) == len(("-S", "IF")):
        return _print_lines(_counters(host, words[1]))
    os.write(2, f"{STANDIN_NOTICE}: {program} {' '.join(words)} is not played\n".encode())
    return EXIT_BAD_OPTION


def _refuse_name(program: str, name: str) -> int:
    """Say that there is no such card or interface: ethtool.c in its words, mft's tools in the stand-in's."""
    if program == "ethtool":
        os.write(2, b"Cannot get stats strings information: No such device\n")
        return EXIT_NO_STRINGS
    os.write(2, f"{STANDIN_NOTICE}: {program}: there is no {name}\n".encode())
    return EXIT_BAD_OPTION


def _priorities(host: dict[str, Any], interface: str) -> list[str]:
    trust = (fault(host, "trust") or {}).get(interface, "dscp")
    lossless = (fault(host, "lossless") or {}).get(interface, [LOSSLESS])
    lines = ["DCBX mode: OS controlled", f"Priority trust state: {trust}"]
    if trust == "dscp":
        lines.append("dscp2prio mapping:")
        for priority in range(NUM_PRIORITIES):
            first = priority * DSCPS_PER_PRIORITY
            dscps = range(first + DSCPS_PER_PRIORITY - 1, first - 1, -1)
            lines.append(f"\tprio:{priority} dscp:" + "".join(f"{dscp:02d}," for dscp in dscps))
    enabled = "   ".join("1" if number in lossless else "0" for number in range(NUM_PRIORITIES))
    return [
        *lines,
        "default priority:",
        "Cable len: 7",
        "PFC configuration:",
        "\tpriority    " + "   ".join(str(number) for number in range(NUM_PRIORITIES)),
        f"\tenabled     {enabled}   ",
        "tc: 0 ratelimit: unlimited, tsa: vendor",
        "\t priority:  1",
    ]


def _bit_errors(host: dict[str, Any], card: str) -> list[str]:
    rate = (fault(host, "bit_errors") or {}).get(card, "15E-255")
    return [
        "",
        "Operational Info",
        "----------------",
        "State                              : Active",
        "Physical state                     : LinkUp",
        "",
        "Physical Counters and BER Info",
        "------------------------------",
        "Time Since Last Clear [Min]        : 1715.4",
        "Effective Physical Errors          : 0",
        f"Effective Physical BER             : {rate}",
        "Raw Physical BER                   : 3E-12",
    ]


def _counters(host: dict[str, Any], interface: str) -> list[str]:
    dropped = (fault(host, "discards") or {}).get(interface, 0)
    return [
        "NIC statistics:",
        "     rx_packets: 120734",
        "     rx_bits_phy: 0",
        "     rx_pcs_symbol_err_phy: 0",
        "     rx_prio0_buf_discard: 0",
        f"     rx_prio{LOSSLESS}_buf_discard: {dropped}",
        f"     rx_prio{LOSSLESS}_cong_discard: 0",
        "     tx_pause_storm_error_events: 0",
    ]


def _print_lines(lines: list[str]) -> int:
    print("\n".join(lines))
    return 0
