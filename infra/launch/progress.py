"""Lines about a long wait: who is awaited, in which phase, for how long, and the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from infra.engines.phases import GRAPHS_STEP, WEIGHTS_STEP, Phase
from infra.launch.deployment import Say

# What several processes share although each has counted to another number.
NAMED_BY_STEP = {WEIGHTS_STEP: "weights", GRAPHS_STEP: "graph capture"}
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
        phases: Mapping[str, Phase],
    ) -> None:
        """Print one line.

        Args:
            now: the clock.
            limit_s: of the whole wait.
            counts: proven and all ranks by role.
            phases: of awaited processes, in plan order.
        """
        self.shown = now
        roles = ", ".join(f"{role} {done}/{total}" for role, (done, total) in counts.items())
        took, limit = clock_text(now - self.begun), clock_text(limit_s)
        self.say(f"{roles} proven; {awaited_words(phases)} ({took} of {limit})")


def awaited_words(phases: Mapping[str, Phase]) -> str:
    """Who is awaited: the process that is behind all others by name, the others by phase."""
    if not phases:
        return "waiting"
    last = min(phases, key=lambda process: (phases[process].step, phases[process].share))
    words = f"waiting for {last}: {phases[last].words}"
    others = Counter(
        NAMED_BY_STEP.get(phase.step, phase.words)
        for process, phase in sorted(phases.items(), key=lambda entry: entry[1].step)
        if process != last
    )
    return "; ".join([words, *(f"{count} more: {name}" for name, count in others.items())])


def clock_text(seconds: float) -> str:
    """`42 s`, or `4 min 10 s`."""
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE_S)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
