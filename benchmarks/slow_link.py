"""A network of its own behind a link that delays every packet: user-space, for kernels without sch_netem.

python slow_link.py ONE_WAY_MS [LOG]  # started in the lab's network; prints the process whose network it is

Of every TCP packet the log gets a line: when it was sent in seconds, `<` from the hosts or `>` to them, its flags and
how many bytes it carries.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from typing import TextIO

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
FAR, NEAR = "169.254.78.1", "169.254.78.2"
TCP = 6
FLAGS = "FSRPAU"


def main() -> None:
    """Make both ends, tell who is behind it, and carry packets until ended."""
    delay_s = float(sys.argv[1]) / 1000
    outside = _tun("slow0", FAR, f"route add {NEAR} dev slow0")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    inside = _tun("slow1", NEAR, "route add default dev slow1")
    print(os.getpid(), flush=True)
    with open(sys.argv[2] if len(sys.argv) > 2 else os.devnull, "w", buffering=1) as log:  # noqa: PLR2004, PTH123
        _carry(outside, inside, delay_s, log)


def _tun(name: str, address: str, route: str) -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    lines = (
        f"link set lo up\naddress add {address}/32 dev {name}\nlink set {name} up txqueuelen 5000\n"
    )
    subprocess.run(["ip", "-batch", "-"], input=f"{lines}{route}\n", text=True, check=True)
    return handle


def _carry(outside: int, inside: int, delay_s: float, log: TextIO) -> None:
    other = {outside: inside, inside: outside}
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    poll = select.epoll()
    for handle in other:
        poll.register(handle, select.EPOLLIN)
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else -1
        for handle, _ in poll.poll(left):
            for _ in range(64):
                try:
                    packet = os.read(handle, 65536)
                except BlockingIOError:
                    break
                number += 1
                due = time.monotonic() + delay_s
                heapq.heappush(waiting, (due, number, other[handle], packet))
                _note(log, "<" if handle == outside else ">", packet)
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, handle, packet = heapq.heappop(waiting)
            os.write(handle, packet)


def _note(log: TextIO, direction: str, packet: bytes) -> None:
    header = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != TCP:  # noqa: PLR2004 - IPv4
        return
    size, flags = (packet[header + 12] >> 4) * 4, packet[header + 13]
    names = "".join(name for bit, name in enumerate(FLAGS) if flags >> bit & 1)
    log.write(f"{time.monotonic():.4f} {direction} {names} {len(packet) - header - size}\n")


if __name__ == "__main__":
    main()
