"""How far a staging is, in lines: per host and in sum, with what is left of the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import InfraError
from infra.launch.staging.plan import giga

MAX_SHOWN = 4
_MINUTE_S = 60
_HOUR_S = 3600
_FAST = 1e8


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one host is with one checkpoint.

    Args:
        phase: verifying, fetching, complete, checked, failed; or lost: it goes on, and nobody waits for it.
        num_bytes: done, of `size_bytes`.
        came_from: how many files came from whom.
        problem: why it failed.
        error: why the host cannot be asked, where that is why it is lost.
    """

    host: str
    phase: str
    files_done: int
    num_files: int
    num_bytes: int
    size_bytes: int
    bytes_per_s: float
    came_from: Mapping[str, int]
    damaged: tuple[str, ...]
    notes: tuple[str, ...]
    problem: str | None
    error: InfraError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.phase in {"complete", "checked", "failed", "lost"}

    @property
    def left_s(self) -> float:
        """Seconds that are left at this rate; for ever where nothing moves or nothing will."""
        if self.is_settled or self.bytes_per_s <= 0:
            return math.inf
        return (self.size_bytes - self.num_bytes) / self.bytes_per_s


def read_standing(host: str, status: Mapping[str, object]) -> Standing:
    """A host's standing from its staging's own words."""
    came = status.get("came_from")
    problem = status.get("problem")
    return Standing(
        host=host,
        phase=str(status.get("phase") or "starting"),
        files_done=_number(status.get("files_done")),
        num_files=_number(status.get("num_files")),
        num_bytes=_number(status.get("num_bytes")),
        size_bytes=_number(status.get("size_bytes")),
        bytes_per_s=float(str(status.get("bytes_per_s") or 0.0)),
        came_from={str(k): _number(v) for k, v in came.items()} if isinstance(came, dict) else {},
        damaged=_words(status.get("damaged")),
        notes=_words(status.get("notes")),
        problem=None if problem is None else str(problem),
    )


def progress_lines(checkpoint: str, standings: Sequence[Standing]) -> list[str]:
    """One line in sum, and one for each host that is not done: all of a few, the slowest of many."""
    waiting = [one for one in standings if not one.is_settled]
    if not waiting:
        return []
    lines = []
    if len(standings) > 1:
        done = len(standings) - len(waiting)
        lines.append(f"{checkpoint}: {done} of {len(standings)} hosts, {_amount(standings)}")
    waiting.sort(key=lambda one: one.size_bytes - one.num_bytes, reverse=True)
    for one in waiting[:MAX_SHOWN]:
        files = f"{one.files_done} of {one.num_files} files"
        lines.append(f"{checkpoint} on {one.host}: {one.phase}, {files}, {_amount([one])}")
    more = len(waiting) - MAX_SHOWN
    return [*lines, f"{checkpoint}: and {more} more hosts, further on"] if more > 0 else lines


def rate_words(num_bytes: int, size_bytes: int, bytes_per_s: float) -> str:
    """`3.2 of 15 GB, 61.0 MB/s, 3 min left`: one transfer."""
    left = (size_bytes - num_bytes) / bytes_per_s if bytes_per_s > 0 else 0.0
    amount = f"{giga(num_bytes)} of {giga(size_bytes)} GB"
    return f"{amount}, {_speed(bytes_per_s)}, {duration(left)} left"


def duration(seconds: float) -> str:
    """`40 s`, `7 min`, `1 h 20 min`: as precise as a wait needs."""
    if seconds < _MINUTE_S:
        return f"{max(int(seconds), 1)} s"
    if seconds < _HOUR_S:
        return f"{round(seconds / _MINUTE_S)} min"
    hours, rest = divmod(int(seconds), _HOUR_S)
    return f"{hours} h {rest // _MINUTE_S} min"


def _amount(standings: Sequence[Standing]) -> str:
    """`118 of 595 GB, 1.1 GB/s, 7 min left`; what is left is the slowest host's."""
    done = sum(one.num_bytes for one in standings)
    size = sum(one.size_bytes for one in standings)
    rate = sum(one.bytes_per_s for one in standings if not one.is_settled)
    text = f"{giga(done)} of {giga(size)} GB"
    open_ones = [one for one in standings if not one.is_settled]
    if rate <= 0 or any(one.bytes_per_s <= 0 for one in open_ones):
        return text + (f", {_speed(rate)}" if rate > 0 else ", no byte moves yet")
    left = max(one.left_s for one in open_ones)
    return f"{text}, {_speed(rate)}, {duration(left)} left"


def _speed(bytes_per_s: float) -> str:
    if bytes_per_s >= _FAST:
        return f"{bytes_per_s / 1e9:.1f} GB/s"
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def _number(value: object) -> int:
    return int(float(str(value))) if value is not None else 0


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
