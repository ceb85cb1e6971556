"""Which host's ranks kept a group from adding up: by how far each rank came, and how it ended; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.launch.preflight.group_collectives.layout import GroupLayout
from infra.launch.preflight.group_collectives.told import ToldHost, ToldRank


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """A host and what its ranks did, in words."""

    host: str
    said: str


def who_did_not_join(layout: GroupLayout, told: Mapping[str, ToldHost]) -> tuple[Blame, ...]:
    """The hosts with ranks that others waited for; () when all ranks have met.

    As long as rank 0 does not listen, nobody can come further than `loaded`, and only who has not come so far is late.
    """
    ranks = [rank for host in told.values() for rank in host.ranks]
    first = next((rank for rank in ranks if rank.rank == 0), None)
    if first is not None and first.has("reached"):
        late = [rank for rank in ranks if not rank.has("reached")]
    else:
        late = [rank for rank in ranks if rank.rank == 0 or not rank.has("loaded")]
    return _by_host(layout, told, late, "did not join")


def who_broke_off(layout: GroupLayout, told: Mapping[str, ToldHost]) -> tuple[Blame, ...]:
    """The hosts with ranks that met the others and did not come to the end; () when all have.

    A rank that died comes before one that gave up, and that before those which only waited for both.
    """
    open_ranks = [rank for host in told.values() for rank in host.ranks if not rank.has("done")]
    died = [rank for rank in open_ranks if rank.error is None and _has_died(rank)]
    gave_up = [rank for rank in open_ranks if rank.error is not None]
    return _by_host(layout, told, died or gave_up or open_ranks, "did not add up")


def _has_died(rank: ToldRank) -> bool:
    """Whether its process ended by itself: the one that watches ends ranks with signal 9."""
    return rank.ended not in (None, 0, -9)


def _by_host(
    layout: GroupLayout, told: Mapping[str, ToldHost], ranks: Sequence[ToldRank], verb: str
) -> tuple[Blame, ...]:
    found: dict[str, list[ToldRank]] = {}
    for rank in ranks:
        found.setdefault(layout.member_of(rank.rank).host, []).append(rank)
    return tuple(
        Blame(host=host, said=f"{_spelt(rows)} {verb}: {_why(rows[0], told[host])}")
        for host, rows in found.items()
    )


def _spelt(rows: Sequence[ToldRank]) -> str:
    numbers = sorted(row.rank for row in rows)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}-{numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers))}"


def _why(rank: ToldRank, told: ToldHost) -> str:
    """What a rank said last, else how it ended, else how far it had come."""
    if rank.error is not None:
        return rank.error
    last = f" ({told.last[-1]})" if told.last else ""
    if _has_died(rank):
        ended = rank.ended or 0
        return f"ended by signal {-ended}{last}" if ended < 0 else f"exit code {ended}{last}"
    waits = {
        "begun": "still loading torch",
        "loaded": "still dialling rank 0",
        "reached": "still waiting for the others",
        "met": "still adding up",
    }
    return f"{waits[rank.phase]} when the time was over{last}"
