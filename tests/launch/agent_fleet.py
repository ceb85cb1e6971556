"""Hosts below folders, each answered by the real agent in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.agent.conversation import answer
from infra.agent.host import Host
from infra.errors import InfraError
from infra.launch.fleet import Answers, Request
from infra.remote.failures import AgentFailed, LeaseHeld


@dataclass(slots=True)
class AgentFleet:
    """A folder per host; `fails` stands in for hosts that cannot be asked."""

    root: Path
    fails: dict[str, InfraError] = field(default_factory=dict)
    asked: list[tuple[str, Request]] = field(default_factory=list)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {}
        for name, request in requests.items():
            self.asked.append((name, request))
            if name in self.fails:
                answers[name] = self.fails[name]
                continue
            report = answer({"schema_version": 1, **request}, self.host(name))
            error = report.get("error")
            if not isinstance(error, dict):
                answers[name] = report
            elif isinstance(error.get("lease"), dict):
                answers[name] = LeaseHeld(name, str(error["what"]), error["lease"])
            else:
                answers[name] = AgentFailed(name, str(error["what"]), str(error["fix"]))
        return answers

    def host(self, name: str) -> Host:
        """The host of that name."""
        return Host(str(self.root / name))


class WaitingClock:
    """The machine's clock, whose waiting is over at once; what happens meanwhile is `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.meanwhile()
