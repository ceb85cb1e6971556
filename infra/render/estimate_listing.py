"""An estimate for people: one column per layout, one row per figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from infra.memory.estimate import RoleEstimate
from infra.memory.price import HOURS_PER_DAY, HourlyPrice
from infra.memory.time_to_ready import TimeToReady
from infra.render.estimates import Estimate

UNKNOWN = "?"
_Figure = tuple[str, Callable[[RoleEstimate], str]]


def estimate_listing(estimates: Sequence[Estimate]) -> str:
    """The table of one or more layouts side by side."""
    rows = [*_head([each.name.split() for each in estimates]), *_totals(estimates)]
    names = list(dict.fromkeys(role.load.role for each in estimates for role in each.roles))
    for name in names:
        chosen = [next((r for r in each.roles if r.load.role == name), None) for each in estimates]
        rows.append((name, *("" for _ in estimates)))
        for title, words in FIGURES:
            rows.append((f"  {title}", *("-" if role is None else words(role) for role in chosen)))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns, ragged at the end."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _head(names: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The layouts' names, one written-over field to a line."""
    for line in range(max(len(name) for name in names)):
        yield ("", *(name[line] if line < len(name) else "" for name in names))


def _totals(estimates: Sequence[Estimate]) -> Iterator[tuple[str, ...]]:
    """What concerns a layout as a whole."""
    yield ("checkpoint", *(each.checkpoint for each in estimates))
    yield ("engine", *(each.engine for each in estimates))
    yield ("accelerator", *(each.accelerators for each in estimates))
    yield ("hosts, devices", *(f"{each.num_hosts}, {each.num_devices}" for each in estimates))
    yield ("weights on disk", *(f"{each.checkpoint_gb:.1f} GB" for each in estimates))
    yield ("minutes to ready", *(_minutes(each.ready) for each in estimates))
    yield ("machines bought", *(_bought(each.price) for each in estimates))
    yield ("USD per hour", *(_usd(each.price.usd_per_hour) for each in estimates))
    yield ("USD per day", *(_usd(_per_day(each.price.usd_per_hour)) for each in estimates))
    yield ("  of these idle", *(_usd(_per_day(_idle(each.price))) for each in estimates))
    if any(each.price.cluster for each in estimates):
        yield ("  of these the cluster", *(_cluster(each.price) for each in estimates))


def _minutes(ready: TimeToReady) -> str:
    """`7.1 (copy 2.3, load 2.8, start 2.0)`."""
    parts = {"copy": ready.copy_s, "load": ready.load_s, "start": ready.start_s}
    words = ", ".join(
        f"{name} {UNKNOWN if seconds is None else f'{seconds / 60:.1f}'}"
        for name, seconds in parts.items()
        if seconds != 0
    )
    return f"{UNKNOWN if ready.minutes is None else f'{ready.minutes:.1f}'} ({words})"


def _bought(price: HourlyPrice) -> str:
    """`9, 3 of them idle`."""
    if not price.purchases:
        return UNKNOWN
    idle = price.num_bought - price.num_used
    return f"{price.num_bought}, {idle} of them idle" if idle else f"{price.num_bought}"


def _idle(price: HourlyPrice) -> float | None:
    return price.idle_usd_per_hour if price.purchases else None


def _cluster(price: HourlyPrice) -> str:
    """USD per day of a cluster beside its nodes with accelerators; `-` without one."""
    return _usd(_per_day(price.cluster_usd_per_hour)) if price.cluster else "-"


def _per_day(usd_per_hour: float | None) -> float | None:
    return None if usd_per_hour is None else usd_per_hour * HOURS_PER_DAY


def _usd(usd: float | None) -> str:
    return UNKNOWN if usd is None else f"{usd:,.2f}"


def _admitted(role: RoleEstimate) -> str:
    return f"{role.longest_request:,}{'' if role.fits else ' (does not fit)'}"


FIGURES: tuple[_Figure, ...] = (
    ("processes, devices", lambda r: f"{r.load.num_processes}, {r.load.num_devices}"),
    ("GiB of a device", lambda r: f"{r.memory.total_gib:.1f}"),
    ("that the engine may use", lambda r: f"{r.memory.usable_gib:.1f}"),
    ("weights", lambda r: f"{r.memory.weights_gib:.1f}"),
    ("draft", lambda r: f"{r.memory.draft_gib:.1f}" if r.memory.draft_gib else "-"),
    ("overhead", lambda r: f"{r.memory.overhead_gib:.1f}"),
    ("left for KV", lambda r: f"{r.memory.kv_gib:.1f}"),
    ("KV tokens of a rank", lambda r: f"{r.kv_tokens:,}"),
    ("longest context", lambda r: f"{r.max_context:,}"),
    ("longest admitted", _admitted),
    ("requests at once", lambda r: f"{r.concurrent_requests:,} of {r.request_tokens:,} tokens"),
)
