"""What a rehearsal is asked for, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.plan.process import Plan
from infra.rehearsal.lab.hosts import Strangers
from infra.rehearsal.report import StepName
from infra.rehearsal.simulated_hosts import Pace
from infra.spec.load import SEARCHED, LoadedStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a rehearsal is asked for.

    Args:
        stack: the stack, None with `plan`.
        plan: a plan document to rehearse as it is, None with `stack`.
        plan_file: its name for messages.
        to_step: the last step.
        spoilt: `PROCESS:KIND` to break between install and start, None for nothing.
        pace: how fast simulated time runs.
    """

    stack: LoadedStack | None
    plan: Plan | None
    plan_file: str
    to_step: StepName
    spoilt: str | None
    pace: Pace

    @property
    def strangers(self) -> Strangers:
        """A plan is from anywhere: its root is nobody here. A stack's words come through our compiler."""
        if self.stack is None:
            return "yes"
        return "no" if Path(self.stack.file).resolve().parent in SEARCHED else "if-possible"
