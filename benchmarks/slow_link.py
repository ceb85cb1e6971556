"""A network of its own behind a link that delays every packet: user-space, for kernels without sch_netem.

python slow_link.py ONE_WAY_MS      # started in the lab's network; prints the process whose network it is
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

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
FAR, NEAR = "169.254.78.1", "169.254.78.2"


def main() -> None:
    """Make both ends, tell who is behind it, and carry packets until ended."""
    delay_s = float(sys.argv[1]) / 1000
    outside = _tun("slow0", FAR, f"route add {NEAR} dev slow0")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    inside = _tun("slow1", NEAR, "route add default dev slow1")
    print(os.getpid(), flush=True)
    _carry(outside, inside, delay_s)


def _tun(name: str, address: str, route: str) -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    lines = (
        f"link set lo up\naddress add {address}/32 dev {name}\nlink set {name} up txqueuelen 5000\n"
    )
    subprocess.run(["ip", "-batch", "-"], input=f"{lines}{route}\n", text=True, check=True)
    return handle


def _carry(outside: int, inside: int, delay_s: float) -> None:
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
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, handle, packet = heapq.heappop(waiting)
            os.write(handle, packet)


if __name__ == "__main__":
    main()
