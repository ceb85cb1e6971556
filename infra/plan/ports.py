"""Ports: one table of blocks, and the allocation of what engines ask for."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from infra.engines.contract import PortName, PortRequest
from infra.errors import StackError
from infra.plan.topology import Group, Seat


class Block(NamedTuple):
    """A range of ports for one purpose; `why` says what it keeps clear of."""

    first: int
    last: int
    why: str


# Kept clear of: Kubernetes NodePorts 30000-32767, the ephemeral range 32768-60999, HCCL 16666 and 60000-60031,
# Ascend direct transport 20000-35999, Mooncake's rpc ports 15000-17000, NCCL RAS 28028, exporters 5000, 8082,
# 9100 and 9400 (facts: hccl and mooncake documents, nccl ras, dcgm and node exporters; checked 2026-11-20).
BLOCKS: Mapping[PortName, Block] = {
    "http": Block(
        first=7100,
        last=7999,
        why="the published Ascend commands start at 7100; below 8000, where clients look",
    ),
    "dp_rpc": Block(first=12321, last=12399, why="the published Ascend commands use 12321"),
    "master": Block(
        first=12400, last=12499, why="beside dp_rpc; vLLM's default 29501 lies in Ascend's range"
    ),
    "supervisor": Block(
        first=12500,
        last=12599,
        why="vLLM's default 9256 is the same on every host: two replicas would meet",
    ),
    "bootstrap": Block(
        first=12600,
        last=12799,
        why="the default 8998 is the same for every prefill process of a host",
    ),
    "dist": Block(first=12800, last=13999, why="seven consecutive ports per SGLang server"),
    "side_channel": Block(
        first=17600,
        last=19999,
        why="wide enough for 2400 ranks; NIXL's default 5600 runs into X11 and 6443",
    ),
    "kv": Block(
        first=61000,
        last=65535,
        why="clear of Mooncake's random ports, HCCL's and the ephemeral range",
    ),
    "prometheus": Block(first=29000, last=29099, why="both routers' default"),
}

# Not of any process: the port on which hosts hand weights on to each other while they are staged.
STAGING_BLOCK = Block(
    first=17100,
    last=17131,
    why="above Mooncake's random ports, below side_channel; the first one that is free on every host is taken",
)

# Where the host of rank 0 tells its group's epoch (docs/decisions.md 21): a port of the stack, not of a process.
WATCH_BLOCK = Block(
    first=14000,
    last=14999,
    why="between SGLang's ports and Mooncake's; wide, as stacks choose by their names",
)

# How many ports of a block one device's process takes at most, where that is more than one.
PORTS_PER_DEVICE: Mapping[PortName, int] = {"dist": 7}

EPHEMERAL_FIRST, EPHEMERAL_LAST = 32768, 60999


class PortBlockFullError(StackError):
    """More ports are asked for on one host than a block holds."""


@dataclass(slots=True)
class PortAllocator:
    """Hands out ports; remembers per host what is taken.

    Args:
        left: devices of every host that another stack has: the ports that it may take at most are left, too.
    """

    left: int = 0
    taken: dict[str, set[int]] = field(default_factory=dict)
    next_free: dict[tuple[str, PortName], int] = field(default_factory=dict)

    def reserve(self, host: str, port: int) -> None:
        """Take a port that somebody chose, so that no block hands it out."""
        self.taken.setdefault(host, set()).add(port)

    def allocate(self, name: PortName, hosts: tuple[str, ...], count: int) -> int:
        """The lowest range of a block that is free on all hosts.

        Args:
            name: the block.
            hosts: where the range must be free.
            count: consecutive ports.

        Raises:
            PortBlockFullError: the block ends before.
        """
        block = BLOCKS[name]
        begin = block.first + self.left * PORTS_PER_DEVICE.get(name, 1)
        first = max([self.next_free.get((host, name), begin) for host in hosts])
        while not self._is_free(first, count, hosts):
            first += 1
        last = first + count - 1
        if last > block.last:
            width = block.last - block.first + 1
            raise PortBlockFullError(
                hosts[0],
                f"{name} ports {first}-{last} lie past the block {block.first}-{block.last} ({width} ports).",
                "Put fewer processes on a host, or widen the block in infra/plan/ports.py.",
            )
        for host in hosts:
            self.next_free[host, name] = last + 1
        return first

    def _is_free(self, first: int, count: int, hosts: tuple[str, ...]) -> bool:
        return all(
            self.taken[host].isdisjoint(range(first, first + count))
            for host in hosts
            if host in self.taken
        )


def watch_port(stack: str, taken: frozenset[int]) -> int:
    """The port of a stack's watchers, the same on every host: by the stack's name, so that two may share hosts.

    Args:
        stack: its name.
        taken: what the stack's own processes bind anywhere.

    Raises:
        PortBlockFullError: they bind the whole block.
    """
    width = WATCH_BLOCK.last - WATCH_BLOCK.first + 1
    start = zlib.crc32(stack.encode())
    for step in range(width):
        port = WATCH_BLOCK.first + (start + step) % width
        if port not in taken:
            return port
    block = f"{WATCH_BLOCK.first}-{WATCH_BLOCK.last}"
    what = f"The stack's own processes bind every port of the watchers' block {block}."
    raise PortBlockFullError(
        f"stack {stack}", what, "Leave one free, or widen WATCH_BLOCK in infra/plan/ports.py."
    )


def allocate_group(
    allocator: PortAllocator, group: Group, requests: Mapping[int, tuple[PortRequest, ...]]
) -> tuple[dict[PortName, int], dict[int, dict[PortName, int]]]:
    """Ports of one group.

    Args:
        allocator: what is taken so far.
        group: the replica.
        requests: what each seat asks for, by its index in `group.seats`.

    Returns:
        Ports of scope leader and group; and ports of scope process by seat index.
    """
    shared: dict[PortName, int] = {}
    own: dict[int, dict[PortName, int]] = {}
    for index, seat in enumerate(group.seats):
        own[index] = {}
        for request in requests[index]:
            if request.scope == "process":
                own[index][request.name] = allocator.allocate(
                    request.name, (seat.host,), request.count
                )
            elif request.name not in shared:
                hosts = _hosts_of(request, group)
                shared[request.name] = allocator.allocate(request.name, hosts, request.count)
    return shared, own


def _hosts_of(request: PortRequest, group: Group) -> tuple[str, ...]:
    leader: Seat = group.seats[0]
    return (leader.host,) if request.scope == "leader" else group.hosts
