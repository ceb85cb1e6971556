"""`hccn_tool -i N -TOPIC -g`: link, health, addresses, TLS, counters and pings of one Ascend device's network.

Written from Huawei's HCCN tool reference, the tool's source (help, `-pfc`, pings), CANN's page on link faults
(`-link_stat`), and from the checks in vLLM-Ascend's prefill/decode page.
"""

from __future__ import annotations

import os

from .ascend_network import answers, device_address, network_mask, virtual_address
from .host_state import STANDIN_NOTICE, fault, fault_of, present_devices, read_host
from .standin_options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOPICS = (
    "-link", "-net_health", "-netdetect", "-gateway", "-tls", "-ip", "-vnic", "-lldp", "-ping",
    "-hccs_ping", "-pfc", "-stat", "-link_stat",
)  # fmt: skip
PING_WORDS = ("address", "pkt", "interval", "num")
EXIT_BAD_OPTION = 1
PING_COUNT = 3
NUM_PRIORITIES = 8
LOSSLESS = 4
NUM_PACKETS = 170045


def main(arguments: list[str]) -> int:
    """Do what `hccn_tool` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    if arguments[1:2] in (["-v"], ["--version"]):
        os.write(2, f"{STANDIN_NOTICE}\n".encode())
        print("hccn_tool version: 25.0.rc1.1")
        return 0
    try:
        device, topic, details, gets = _read_command_line(arguments[1:])
    except BadOption as error:
        return _refuse(f"Unrecognized option: {error.word}")
    host = read_host()
    if not gets or not topic or not device:
        return _refuse("Option -i, -g or the command is missing.")
    if not device.isdigit() or int(device) not in present_devices(host):
        return _refuse(f"Invalid device id: {device}")
    if topic in ("-ping", "-hccs_ping"):
        return _ping(host, int(device), topic, details.get("address", ""))
    for line in describe(host, topic, int(device)):
        print(line)
    return 0


def _read_command_line(words: list[str]) -> tuple[str, str, dict[str, str], bool]:
    """Return device, topic, details of a ping, and whether `-g` was given.

    Raises:
        BadOption: a word that the tool does not take there.
    """
    device, topic, gets = "", "", False
    details: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-i" and rest:
            device = rest.pop(0)
        elif word == "-g":
            gets = True
        elif word in TOPICS and not topic:
            topic = word
        elif word in PING_WORDS and topic in ("-ping", "-hccs_ping") and rest:
            details[word] = rest.pop(0)
        else:
            raise BadOption(word)
    return device, topic, details, gets


def describe(host: dict[str, Any], topic: str, device: int) -> list[str]:
    """Return the lines of one topic of one device."""
    octets = device_address(host["address"], device).split(".")
    gateway = ".".join([*octets[:3], "254"])
    own_gateway = fault_of(host, "gateway", device, gateway)
    is_down = device in (fault(host, "link_down") or ())
    lines = {
        "-link": [f"link status: {'DOWN' if is_down else 'UP'}"],
        "-net_health": [f"net health status: {fault_of(host, 'net_health', device, 'Success')}"],
        "-netdetect": [f"netdetect address: {fault_of(host, 'netdetect', device, gateway)}"],
        "-gateway": [
            f"default gateway:{own_gateway}, Iface:eth{device}"
            if own_gateway
            else "Get gateway failed, because no gateway was preset there!"
        ],
        "-tls": [
            (
                f"dev_id:{device}, tls switch[{fault_of(host, 'tls_switch', device, 0)}]"
                "(0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset), "
                "tls alarm time threshold[60]days"
            )
        ],
        "-ip": [
            f"ipaddr:{device_address(host['address'], device)}",
            f"netmask:{network_mask(host)}",
        ],
        "-vnic": [
            "vnic link status: UP",
            f"vnic ipaddr:{virtual_address(host, device)}",
            f"vnic netmask:{network_mask(host)}",
        ],
        "-lldp": [
            "Chassis ID TLV",
            "\tMAC: 60:12:3c:00:00:01",
            "Port ID TLV",
            f"\tIfname: 200GE1/0/{device + 1}",
            "Time to Live TLV",
            "\t120",
            "System Name TLV",
            "\tleaf-0",
            "End of LLDPDU TLV",
        ],
    }
    return (lines | _port_lines(host, device))[topic]


def _port_lines(host: dict[str, Any], device: int) -> dict[str, list[str]]:
    """Return what a device's port says of its priorities and of what it has carried, by topic."""
    lossless = fault_of(host, "lossless", device, LOSSLESS)
    return {
        "-pfc": [
            "PFC configuration:",
            "priority   " + " ".join(str(number) for number in range(NUM_PRIORITIES)),
            "enabled    "
            + " ".join("1" if number == lossless else "0" for number in range(NUM_PRIORITIES)),
        ],
        "-stat": [
            "packet statistics:",
            f"mac_rx_total_pkt_num:{NUM_PACKETS}",
            f"mac_rx_fcs_err_pkt_num:{fault_of(host, 'spoilt', device, 0)}",
        ],
        "-link_stat": [
            f"[devid {device}]current time        : Tue Oct 28 21:46:46 2025",
            f"[devid {device}]link up count       : 1",
            f"[devid {device}]link down count     : {fault_of(host, 'link_downs', device, 0)}",
            f"[devid {device}]link change records :",
            f"[devid {device}]    Sun Oct  5 10:13:35 2025    LINK UP",
        ],
    }


def _ping(host: dict[str, Any], device: int, topic: str, address: str) -> int:
    """Ping a device of another host."""
    if not address:
        return _refuse("The address of the ping is missing.")
    received = PING_COUNT if answers(host, address) else 0
    print(f"device {device} PING {address}")
    lost = 100.0 * (PING_COUNT - received) / PING_COUNT
    counted = f"{PING_COUNT} packets transmitted, {received} received, {lost:.2f}%"
    if topic == "-hccs_ping":
        for sequence in range(PING_COUNT):
            print("This pkt ping success!" if received else "This pkt send fail!")
            print(f"recv seq {sequence}, time = 4.120us, L1 plane check result = 0x0")
        print(f"{counted} packets loss")
        return 0  # whatever was lost
    for sequence in range(PING_COUNT):
        print(
            f"recv seq={sequence},time=0.104000ms" if received else f"recv time out seq={sequence}"
        )
    print(f"{counted} packet loss")
    return 0 if received else EXIT_BAD_OPTION


def _refuse(text: str) -> int:
    """Print why a command line is refused."""
    print(f"{text}\nCmd execute failed!")
    return EXIT_BAD_OPTION
