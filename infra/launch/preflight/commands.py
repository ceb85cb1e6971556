"""Programs that a host is asked to run, each with its time, and how long a host takes for them at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapreplace

from infra.agent.facts.operation import MAX_PARALLEL
from infra.agent.host import REAP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to run on a host.

    Args:
        id: names its answer.
        behind: what to run when it is over its time, or when nobody waits for it any more; () for nothing.
        queue: commands of one run one after another; "" for one that waits for none.
    """

    id: str
    argv: tuple[str, ...]
    timeout_s: float
    behind: tuple[str, ...] = ()
    queue: str = ""

    def as_document(self) -> dict[str, object]:
        """As the agent reads it."""
        behind = {"behind": list(self.behind)} if self.behind else {}
        queue = {"queue": self.queue} if self.queue else {}
        asked = {"id": self.id, "argv": list(self.argv), "timeout_s": self.timeout_s}
        return {**asked, **behind, **queue}


def asking_s(commands: Iterable[Command]) -> float:
    """How long a host takes for some commands when none of them answers, and none can be killed, in seconds.

    The agent runs some at a time, in the order of their queues: whichever ends first makes room for the next. Whoever
    waits for it must wait longer, or hosts with a tool that hangs would be taken for silent ones.
    """
    queues: dict[object, float] = {}
    for command in commands:
        queue = command.queue or (command.id,)
        queues[queue] = queues.get(queue, 0.0) + command.timeout_s + REAP_S
    ends = [0.0] * MAX_PARALLEL
    for taken_s in queues.values():
        heapreplace(ends, ends[0] + taken_s)
    return max(ends)
