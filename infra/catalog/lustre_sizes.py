"""Which sizes and tiers FSx for Lustre offers.

Source: AWS, FSx for Lustre User Guide, "Deployment and storage options" and "EFA-enabled file
systems" (PERSISTENT_2, SSD), checked 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TIERS = (125, 250, 500, 1000)  # MB/s per TiB
SMALLEST_GIB = 1200
STEP_GIB = 2400
EFA_STEP_GIB: Mapping[int, int] = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}


class LustreSettings(NamedTuple):
    """An FSx for Lustre file system: size in GiB, throughput in MB/s per TiB."""

    capacity_gib: int
    throughput: int
    has_efa: bool


class LustreProblem(NamedTuple):
    """Why a file system does not exist.

    Args:
        is_tier: whether its tier is wrong, and not its size.
        instead: the next larger tier (the largest above that), or the next larger size in GiB, that exists.
    """

    what: str
    is_tier: bool
    instead: int


def lustre_problem(settings: LustreSettings) -> LustreProblem | None:
    """What is wrong with a tier or a size; None when there is such a file system."""
    if settings.throughput not in TIERS:
        tiers = ", ".join(str(tier) for tier in TIERS)
        return LustreProblem(
            what=f"There is no tier of {settings.throughput} MB/s per TiB; there are {tiers}.",
            is_tier=True,
            instead=next((tier for tier in TIERS if tier > settings.throughput), TIERS[-1]),
        )
    step = EFA_STEP_GIB[settings.throughput] if settings.has_efa else STEP_GIB
    smallest = step if settings.has_efa else SMALLEST_GIB
    if settings.capacity_gib == smallest or (
        settings.capacity_gib > 0 and settings.capacity_gib % step == 0
    ):
        return None
    rounded_up = -(-settings.capacity_gib // step) * step
    larger = rounded_up if settings.capacity_gib > smallest else smallest
    kind = "EFA-enabled file system" if settings.has_efa else "file system"
    rule = f"{smallest} GiB, or a multiple of {step} GiB"
    size = f"{settings.capacity_gib} GiB at {settings.throughput} MB/s per TiB"
    what = f"A {kind} of {size} does not exist; it is {rule}."
    return LustreProblem(what=what, is_tier=False, instead=larger)
