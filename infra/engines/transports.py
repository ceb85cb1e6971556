"""Which transport a group really uses between its hosts, read from the lines that its libraries log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Transport = Literal["rdma", "socket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSign:
    """A log line that tells a transport.

    Args:
        library: whose line it is.
        pattern: searched for in a line, in Python's and in a byte's regular expressions alike.
        source: where the line was read.
        checked: when.
    """

    library: Literal["NCCL"]
    transport: Transport
    pattern: str
    source: str
    checked: str


# NCCL logs them with NCCL_DEBUG=INFO; otherwise there is nothing to read.
# `NET/Socket : Using` alone tells nothing: releases that go on to use IB print it too.
SIGNS: tuple[TransportSign, ...] = (
    TransportSign(
        library="NCCL",
        transport="rdma",
        pattern=r"NCCL INFO Using network (?:IB|IBext\w*|AWS Libfabric|Libfabric|RCCL-anp)",
        source="lines in NVIDIA/nccl-tests#228",
        checked="2026-11-20",
    ),
    TransportSign(
        library="NCCL",
        transport="rdma",
        pattern=r"NCCL INFO NET/(?:IB|OFI) : ?Using \[0\]",
        source="lines in NVIDIA/nccl-tests#228",
        checked="2026-11-20",
    ),
    TransportSign(
        library="NCCL",
        transport="socket",
        pattern=r"NCCL INFO Using network Socket",
        source="lines in NVIDIA/nccl#1519",
        checked="2026-11-20",
    ),
    TransportSign(
        library="NCCL",
        transport="socket",
        pattern=r"NCCL INFO .* via NET/Socket/\d",
        source="lines in NVIDIA/nccl#226",
        checked="2026-11-20",
    ),
)


def any_sign() -> str:
    """One expression for every line that tells a transport."""
    return "|".join(f"(?:{sign.pattern})" for sign in SIGNS)


def fallen_back(lines: Iterable[str]) -> str | None:
    """The line that says that a library goes over sockets, although none says that it uses RDMA; else None."""
    told: dict[str, dict[Transport, str]] = {}
    for line in lines:
        for sign in SIGNS:
            if re.search(sign.pattern, line):
                told.setdefault(sign.library, {}).setdefault(sign.transport, line)
    for transports in told.values():
        if "socket" in transports and "rdma" not in transports:
            return transports["socket"]
    return None


def tells_rdma(lines: Iterable[str]) -> bool:
    """Whether a line says that RDMA is used."""
    return any(
        re.search(sign.pattern, line)
        for line in lines
        for sign in SIGNS
        if sign.transport == "rdma"
    )
