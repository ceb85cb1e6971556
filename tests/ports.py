"""Ports for servers of tests: nobody listens on them, and no connection of this machine may take one in between."""

from __future__ import annotations

import itertools
import os
import socket

# Below the kernel's ephemeral range, where any connection of this machine may take a port; each test
# process starts elsewhere.
_PORTS = itertools.cycle(range(11000, 32000))
_SKIPPED = (os.getpid() * 613) % 21000


def free_ports(count: int = 1) -> list[int]:
    """Return ports that nobody listens on, in one block."""
    found: list[int] = []
    while len(found) < count:
        port = (next(_PORTS) - 11000 + _SKIPPED) % 21000 + 11000
        is_next = not found or port == found[-1] + 1
        kept = found if is_next else []
        found = [*kept, port] if _is_free(port) else []
    return found


def free_port() -> int:
    """A port that nobody listens on."""
    return free_ports()[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
