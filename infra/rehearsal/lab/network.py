"""The lab's network: a router in its own namespace, one cable to each host.

Every host has its address as a /32 and everything else behind the router, so that a plan's addresses
need no common prefix. A packet for a host that is cut off or powered down goes into a sink and is
never answered, as on a real network.

A cable whose ends come up one after the other is usable at once only at the later end; the other
waits up to a second for the kernel's rate-limited carrier event (net/core/link_watch.c). Setting its
queue length re-activates it immediately.

Every packet is acknowledged at once (`quickack`): clients and servers that leave Nagle's algorithm on
(paramiko, sshd) otherwise lose 40 ms per round, on a network whose delays nobody asked about.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROUTER_ADDRESS = "169.254.77.1"
ASIDE_ADDRESS = "169.254.78."
NETWORK_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/default/rp_filter": "1",  # a cut host's own packets are dropped too
}
QUEUE_LENGTH = 500
_CUT_METRIC, _CABLE_METRIC, _SINK_METRIC = 1, 10, 4000
_CABLE_ROUTE = f"src {ROUTER_ADDRESS} metric {_CABLE_METRIC} quickack 1"
_SIOCSIFTXQLEN = 0x8943


def start_router(addresses: tuple[str, ...]) -> None:
    """Turn this (fresh) network namespace into the lab's router."""
    for name, value in NETWORK_SYSCTLS.items():
        Path("/proc/sys", name).write_text(value)
    lines = [
        "link set lo up",
        f"address add {ROUTER_ADDRESS}/32 dev lo",
        "link add sink type veth peer name drain",
        "link set sink arp off",
        "link set drain up",
        "link set sink up",
    ]
    lines += [f"route add {address} dev sink metric {_SINK_METRIC}" for address in addresses]
    _run_ip(lines)
    reactivate("drain")


def plug_in(hosts: dict[str, tuple[str, str, int]]) -> None:
    """Lay a cable to each host's network namespace.

    Args:
        hosts: cable name → address, hardware address, process id of the host's PID 1.
    """
    lines = []
    for cable, (address, hardware, pid) in hosts.items():
        lines += [
            f"link add {cable} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {cable} up",
            f"route replace {address} dev {cable} {_CABLE_ROUTE}",
        ]
    _run_ip(lines)


def configure_inside(address: str, aside: Sequence[str] = ()) -> None:
    """Bring a host's own end up; runs in the host's network namespace.

    Args:
        address: the host's.
        aside: further interfaces, up and with an address, whose cables lead to no other host.
    """
    lines = [
        "link set lo up",
        f"address add {address}/32 dev eth0",
        "link set eth0 up",
        f"route add default via {ROUTER_ADDRESS} dev eth0 onlink quickack 1",
    ]
    for number, name in enumerate(aside, start=1):
        end = f"{name}-end"
        lines += [f"link add {name} type veth peer name {end}", f"link set {end} up"]
        lines += [f"address add {ASIDE_ADDRESS}{number}/32 dev {name}", f"link set {name} up"]
    _run_ip(lines)


def reactivate(interface: str) -> None:
    """Make an interface usable now whose other end came up after it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for length in (QUEUE_LENGTH + 1, QUEUE_LENGTH):  # only a change counts
            request = struct.pack("16si20x", interface.encode(), length)
            fcntl.ioctl(any_socket, _SIOCSIFTXQLEN, request)


def cut(address: str) -> None:
    """Lose every packet to and from a host."""
    _run_ip([f"route replace {address} dev sink metric {_CUT_METRIC}"])


def heal(address: str) -> None:
    """Undo `cut`."""
    _run_ip([f"route delete {address} dev sink metric {_CUT_METRIC}"])


def unplug(cable: str) -> None:
    """Let a host see that its cable has no carrier."""
    _run_ip([f"link set {cable} down"])


def replug(address: str, cable: str) -> None:
    """Undo `unplug`."""
    _run_ip(
        [f"link set {cable} up", f"route replace {address} dev {cable} {_CABLE_ROUTE}"],
    )
    reactivate(cable)


def remove(cable: str) -> None:
    """Take a cable away; it may be gone already, with its host's network namespace."""
    with contextlib.suppress(subprocess.CalledProcessError):
        _run_ip([f"link delete {cable}"])


def hardware_address(number: int) -> str:
    """The fixed MAC of the lab's host of that number: a reboot must not look like another host."""
    return f"02:00:4d:45:{number >> 8 & 255:02x}:{number & 255:02x}"


def _run_ip(lines: list[str]) -> None:
    subprocess.run(
        ["ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        check=True,
        capture_output=True,
    )
