"""Ports of a stack that the kernel would otherwise give to outgoing connections."""

from __future__ import annotations

from collections.abc import Iterable

from infra.engines.network_names import hccl_ports
from infra.plan.ports import EPHEMERAL_FIRST, EPHEMERAL_LAST
from infra.plan.process import Process

RESERVED_PORTS_ID = "net.ipv4.ip_local_reserved_ports"


def ports_to_reserve(processes: Iterable[Process]) -> frozenset[int]:
    """What the processes of one host bind from the ephemeral range up.

    Above its default end too: hosts of large clusters widen the range.
    """
    return frozenset(port for port in _bound(processes) if port >= EPHEMERAL_FIRST)


def hccl_ports_to_reserve(processes: Iterable[Process]) -> frozenset[int]:
    """What HCCL takes by itself from the ephemeral range up, where variables of the engines have moved it too.

    Args:
        processes: of one host with Ascend devices.
    """
    return frozenset(
        port
        for process in processes
        if process.kind == "engine"
        for port in hccl_ports(process.env)
        if port >= EPHEMERAL_FIRST
    )


def ports_at_risk(processes: Iterable[Process]) -> frozenset[int]:
    """What lies inside the kernel's default ephemeral range: `up` refuses while it is not reserved."""
    return frozenset(
        port for port in _bound(processes) if EPHEMERAL_FIRST <= port <= EPHEMERAL_LAST
    )


def reserved_ports_text(want: str, ports: Iterable[int]) -> str:
    """The ports of a profile's list and others, as the kernel writes it: `50000,61000-61007`."""
    runs: list[list[int]] = []
    for port in sorted(read_ports(want) | set(ports)):
        if runs and port == runs[-1][1] + 1:
            runs[-1][1] = port
        else:
            runs.append([port, port])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def read_ports(text: str) -> set[int]:
    """The ports of a list in the kernel's spelling."""
    found: set[int] = set()
    for word in text.replace(",", " ").split():
        first, _, last = word.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _bound(processes: Iterable[Process]) -> Iterable[int]:
    for process in processes:
        for bind in process.binds:
            yield from range(bind.port, bind.port + bind.count)
