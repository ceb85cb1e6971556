"""What a host's ranks told, read from what its unit printed; and how fast the group was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.launch.preflight.group_collectives.adding_up import MARK, PHASES

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRank:
    """What became of a rank.

    Args:
        phase: how far it has come, of `PHASES`.
        error: what it said when it gave up, None when it did not.
        ended: exit code of its process, below zero the signal that ended it; None when that is not known.
        seconds: of one all-reduce, the mean of several; None before the end.
        wrong: sums that were not right; None before the end.
    """

    rank: int
    phase: str
    error: str | None
    ended: int | None
    seconds: float | None
    wrong: int | None

    def has(self, phase: str) -> bool:
        """Whether it has come so far."""
        return PHASES.index(self.phase) >= PHASES.index(phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldHost:
    """What a host's ranks told.

    Args:
        torch: release of torch that they have loaded, "" when none did.
        lines: of the libraries' logs, those that tell a transport.
        last: the last lines that anything printed.
    """

    ranks: tuple[ToldRank, ...]
    torch: str
    lines: tuple[str, ...]
    last: tuple[str, ...]


def parse_told(text: str) -> ToldHost | None:
    """The line behind `MARK`; None where there is none, or where it is not what the ranks' parent writes."""
    marked = [line for line in text.splitlines() if line.startswith(MARK)]
    try:
        document = json.loads(marked[-1].removeprefix(MARK)) if marked else None
    except ValueError:
        return None
    if not isinstance(document, Mapping):
        return None
    rows = document.get("ranks")
    ranks = [_rank(row) for row in rows] if isinstance(rows, list) else []
    if not ranks or None in ranks:
        return None
    releases = [str(row["torch"]) for row in rows or () if row.get("torch")]
    return ToldHost(
        ranks=tuple(rank for rank in ranks if rank is not None),
        torch=releases[0] if releases else "",
        lines=_texts(document.get("lines")),
        last=_texts(document.get("last")),
    )


def bus_gb_s(num_bytes: int, seconds: float, num_ranks: int) -> float:
    """Bandwidth of the bus in GB/s, as nccl-tests count it: bytes / seconds x 2 (n - 1) / n.

    Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md, "AllReduce". Seconds are the slowest rank's, as with
    `all_reduce_perf -a 3`; its default is the mean over all ranks.
    """
    return num_bytes / seconds * 2 * (num_ranks - 1) / num_ranks / GB


def slowest(ranks: Sequence[ToldRank]) -> ToldRank:
    """The rank that took longest, of ranks that have come to the end."""
    return max(ranks, key=lambda one: one.seconds or 0.0)


def _rank(row: object) -> ToldRank | None:
    if not isinstance(row, Mapping) or not isinstance(row.get("rank"), int):
        return None
    if row.get("phase") not in PHASES:
        return None
    seconds, wrong, ended = row.get("seconds"), row.get("wrong"), row.get("ended")
    is_done = isinstance(seconds, float) and seconds > 0 and isinstance(wrong, int)
    if row["phase"] == PHASES[-1] and not is_done:
        return None
    return ToldRank(
        rank=row["rank"],
        phase=str(row["phase"]),
        error=None if row.get("error") is None else str(row["error"]),
        ended=ended if isinstance(ended, int) else None,
        seconds=seconds if isinstance(seconds, float) else None,
        wrong=wrong if isinstance(wrong, int) else None,
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
