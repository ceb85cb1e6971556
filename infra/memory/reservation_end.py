"""When a reservation ends, and by when its machines have to be given back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.catalog.instance_types import CapacityKind, notice_minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationEnd:
    """The end of a reservation, as seen at some moment.

    Args:
        ends: when it is over.
        stop_by: when its machines have to be given back; `ends` where they may run on.
        hours_left: to `ends`, 0 when it is over.
    """

    ends: datetime
    stop_by: datetime
    hours_left: float


def reservation_end(
    ends: datetime, now: datetime, kind: CapacityKind, *, are_managed_nodes: bool
) -> ReservationEnd:
    """The end of a reservation.

    Args:
        ends: with a time zone.
        now: with a time zone.
        kind: how the machines are bought.
        are_managed_nodes: whether they are of a managed node group on EKS.
    """
    notice = timedelta(minutes=notice_minutes(kind, are_managed_nodes=are_managed_nodes) or 0)
    hours_left = max((ends - now).total_seconds() / 3600, 0.0)
    return ReservationEnd(ends=ends, stop_by=ends - notice, hours_left=hours_left)
