"""What is bought for a stack, for people and for `--json`: reserved, used, idle, and what would use it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.memory.price import HOURS_PER_DAY, HourlyPrice
from infra.memory.reservation_end import ReservationEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class FullerStack:
    """The chosen stack with `FIELD=VALUE` words over it, and the hosts that it takes then."""

    words: tuple[str, ...]
    num_hosts: int


def purchase_document(
    price: HourlyPrice, end: ReservationEnd | None, fuller: Sequence[FullerStack]
) -> dict[str, object] | None:
    """What `--json` says of a purchase; None where no price is known. Money is USD, times are UTC."""
    usd = price.usd_per_hour
    if usd is None:
        return None
    return {
        "kind": price.kind,
        "units": [
            {"sold_as": each.sold_as, "count": each.num_units, "machines": each.num_machines}
            for each in price.purchases
        ],
        "reserved": price.num_bought,
        "used": price.num_used,
        "idle": price.num_bought - price.num_used,
        "usd_per_hour": _cents(usd),
        "usd_per_day": _cents(usd * HOURS_PER_DAY),
        "idle_usd_per_hour": _cents(price.idle_usd_per_hour),
        "idle_usd_per_day": _cents(price.idle_usd_per_hour * HOURS_PER_DAY),
        "cluster": [
            {"what": each.what, "usd_per_hour": each.usd_per_hour, "why": each.why}
            for each in price.cluster
        ],
        "saved_by_destroying_compute_usd_per_hour": _cents(price.saved_usd_per_hour),
        "price_list": price.list_date,
        "end": None
        if end is None
        else {
            "ends": _time(end.ends),
            "stop_by": _time(end.stop_by),
            "hours_left": round(end.hours_left, 2),
            "usd_left": _cents(end.hours_left * usd),
        },
        "fuller": [{"set": list(each.words), "hosts": each.num_hosts} for each in fuller],
    }


def cost_sentence(price: HourlyPrice) -> str:
    """What a purchase costs by the hour and the day, by which list, and what of it is idle; or why nobody knows."""
    usd = price.usd_per_hour
    if usd is None:
        return f"What the machines cost is not known: {price.why}."
    said = f"The machines cost {_hour_and_day(usd)}: {price.why}. "
    idle = price.num_bought - price.num_used
    if not idle:
        return f"{said}None of them is idle."
    return (
        f"{said}{idle} of {price.num_bought} machines are idle: "
        f"{_hour_and_day(price.idle_usd_per_hour)}."
    )


def _hour_and_day(usd_per_hour: float) -> str:
    return f"{usd_per_hour:,.2f} USD per hour, {usd_per_hour * HOURS_PER_DAY:,.2f} per day"


def purchase_lines(
    price: HourlyPrice, end: ReservationEnd | None, fuller: Sequence[FullerStack]
) -> Iterator[str]:
    """Sentences about a purchase; none where no price is known."""
    usd = price.usd_per_hour
    if usd is None:
        return
    if price.kind == "on-demand":
        yield f"Destroying compute alone saves {usd:,.2f} USD per hour; what holds weights stays."
    else:
        saved = price.saved_usd_per_hour
        whose = f"{saved:,.2f} USD per hour, the cluster's" if saved else "nothing"
        yield f"Destroying compute alone saves {whose}: what is reserved is charged whether it runs or not."
    if end is not None:
        left = f"{end.hours_left:,.1f} hours and {end.hours_left * usd:,.2f} USD are left"
        yield f"It ends at {_time(end.ends)}: {left}. Serve until {_time(end.stop_by)} at most."
    elif price.kind != "on-demand":
        yield "Its end is not known here: `pulumi preview` prints it; --until TIME counts to it."
    for each in fuller:
        words = " ".join(f"--set {word}" for word in each.words)
        yield f"With {each.num_hosts} of {price.num_bought} machines in use: {words}"


def _cents(usd: float) -> float:
    return round(usd, 3)


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")
