"""Lines about a long wait: who is awaited, in which phase, for how long, and the limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.launch.deployment import Say
from infra.launch.unit_states import plain

MAX_PHASE = 70
_MINUTE_S = 60


@dataclass(slots=True)
class Progress:
    """When a line is due, and what it says.

    Args:
        say: where it goes.
        every_s: seconds between two lines.
        begun: when the wait began.
    """

    say: Say
    every_s: float
    begun: float
    shown: float = 0.0

    def is_due(self, now: float) -> bool:
        """Whether the last line is long enough ago."""
        return now - max(self.shown, self.begun) >= self.every_s

    def show(
        self,
        now: float,
        limit_s: float,
        counts: Mapping[str, tuple[int, int]],
        logs: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Print one line.

        Args:
            now: the clock.
            limit_s: of the whole wait.
            counts: proven and all ranks by role.
            logs: last log lines by awaited process, in plan order.
        """
        self.shown = now
        roles = ", ".join(f"{role} {done}/{total}" for role, (done, total) in counts.items())
        process, tail = next(iter(logs.items()), ("", ()))
        phase = next((plain(line) for line in reversed(tail) if plain(line)), "no line yet")
        waiting = f"waiting for {process}: {phase[:MAX_PHASE]}" if process else "waiting"
        self.say(
            f"{roles} proven; {waiting} ({clock_text(now - self.begun)} of {clock_text(limit_s)})"
        )


def clock_text(seconds: float) -> str:
    """`42 s`, or `4 min 10 s`."""
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE_S)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
