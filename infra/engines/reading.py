"""What a command line and its environment say, read back: ranks, devices, ports, dials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """`count` consecutive ports from `port` that a process listens on, under one name."""

    name: str
    port: int
    count: int = 1


class Dial(NamedTuple):
    """An address and port that the command line names for connecting to."""

    name: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One process as its engine would understand it.

    Args:
        flags: canonical flag name without dashes → parsed value; only what was given.
        unknown: argv words that the release's parser rejects, with its reason.
        dp_ranks: ranks whose engine core runs here.
        devices: indices on the host.
        http_port: None when headless.
        binds: ports it listens on, sorted by name.
        dials: addresses it connects to.
        group_size: data-parallel size of its group.
        is_leader: whether it holds rank 0 (or node 0) of its group.
        takes_requests: whether it takes requests for a model: none that is headless, or behind the first node of
            its server. vLLM reads no rank of a node where there is one node; SGLang takes any but 0 for a follower.
    """

    flags: Mapping[str, object]
    unknown: tuple[tuple[str, str], ...] = ()
    dp_ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    http_port: int | None = None
    binds: tuple[Bind, ...] = ()
    dials: tuple[Dial, ...] = ()
    group_size: int = 1
    is_leader: bool = True
    takes_requests: bool = True
    extra: Mapping[str, object] = field(default_factory=dict)
