"""Which stacks hosts hold where nothing of the chosen one is, in words."""

from __future__ import annotations

from infra.launch.deployment import Limits
from infra.launch.releases import stacks_there
from infra.tasks.recorded_hosts import ReachedStack


def others_there(reached: ReachedStack) -> str:
    """The stacks that hosts hold in the place of the chosen one, as a sentence; "" for none."""
    names = stacks_there(reached.fleet, reached.hosts, reached.name, timeout_s=Limits().ask_s)
    return f" They hold {' and '.join(names)}." if names else ""
