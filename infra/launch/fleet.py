"""The hosts of a deployment, asked together: one request per host, one answer or failure per host."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from infra.errors import InfraError
from infra.inventory.hosts import InventoryHost
from infra.remote.agent_session import AgentSession
from infra.remote.agent_stream import AgentStream, open_agent_stream
from infra.remote.connecting import SshOptions
from infra.remote.early_agents import EarlyAgents
from infra.remote.failures import AgentFailed, HostFailure, LostConnection, SeveralHostsFailed
from infra.remote.fan_out import run_on_all
from infra.remote.host import SshHost
from infra.remote.openings import MAX_OPENINGS
from infra.remote.ssh_target import resolve_target

Request = Mapping[str, object]
Report = Mapping[str, object]
Answers = dict[str, Report | InfraError]

# A lost connection leaves the outcome unknown: it is looked at again this often before it is given up.
REREADS = 3


class Fleet(Protocol):
    """Hosts that answer requests to their agents."""

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """The report of each host, or why there is none; hosts are asked at the same time."""
        ...


class Clock(Protocol):
    """Time that can be waited for; tests bring their own."""

    def now(self) -> float:
        """Seconds that only grow."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class SshFleet:
    """Hosts over SSH; each connection is opened once and kept, and so is the agent behind it.

    Few connections are opened at once (`Openings`), but hosts that are connected to are asked all at the same time:
    what they are asked may have them wait for each other.
    """

    def __init__(
        self,
        hosts: Mapping[str, InventoryHost],
        options: SshOptions,
        *,
        asks_once: bool = False,
        early: EarlyAgents | None = None,
    ) -> None:
        """Prepare; the first request connects.

        Args:
            hosts: by name.
            options: how they are reached.
            asks_once: hang up after each answer, and ask few hosts at once, none of which waits for another: no more
                connections stand than may be opened at a time.
            early: hosts whose agents are being started with the same options; None for none.

        Raises:
            StackError: a host's ssh arguments are wrong.
        """
        self._options = options
        self._asks_once = asks_once
        self._hosts: dict[str, SshHost] = {}
        self._agents: dict[str, AgentSession] = {}
        for name, host in hosts.items():
            begun = early.take(host) if early is not None else None
            self._hosts[name], self._agents[name] = begun or _unopened(host, options)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """See `Fleet`."""
        hosts = [self._hosts[name] for name in requests]

        def ask(host: SshHost) -> Report:
            try:
                return self._agents[host.name].ask(requests[host.name], timeout_s=timeout_s)
            finally:
                if self._asks_once:
                    host.close()

        limit = MAX_OPENINGS if self._asks_once else None
        send_away = self._options.resources.openings.send_away
        results = run_on_all(hosts, ask, limit=limit, before_closing=send_away)
        answers: Answers = {}
        for name, result in results.items():
            answers[name] = result.error if result.error is not None else result.unwrap()
        return answers

    def open_stream(
        self, host: str, request: Request, *, timeout_s: float | None = None
    ) -> AgentStream:
        """A streamed answer of one host.

        Raises:
            HostsFailed: there is no connection to it.
        """
        return open_agent_stream(
            self._hosts[host],
            request,
            timeout_s=timeout_s,
            password=self._options.sudo,
        )

    def hang_up(self) -> None:
        """Close every connection; the next request to a host opens another one, with an agent of its own."""
        for host in self._hosts.values():
            host.close()

    def close(self) -> None:
        """Close every connection, for good."""
        self.hang_up()
        self._options.resources.close()


def _unopened(host: InventoryHost, options: SshOptions) -> tuple[SshHost, AgentSession]:
    """A host that is connected to by its first request."""
    target = resolve_target(host, options.defaults, options.resources.ssh_config)
    opened = SshHost(target, options)
    return opened, AgentSession(opened, options.sudo)


def ask_all(
    fleet: Fleet, requests: Mapping[str, Request], *, timeout_s: float
) -> dict[str, Report]:
    """The report of every host, asked again where the connection was lost; see `answers_when_known`.

    Raises:
        HostsFailed: of the one host that failed or is still out of reach, or a table of several.
    """
    return all_reports(answers_when_known(fleet, requests, timeout_s=timeout_s))


def ask_reached(
    fleet: Fleet, requests: Mapping[str, Request], *, timeout_s: float
) -> tuple[dict[str, Report], tuple[HostFailure, ...]]:
    """The report of every host that gives one, and why the others give none; asked as `ask_all` asks.

    Raises:
        HostsFailed: no host gives a report.
    """
    answers = answers_when_known(fleet, requests, timeout_s=timeout_s)
    failures = _failures_of(answers)
    if len(failures) == len(answers):
        all_reports(answers)
    return _reports_of(answers), failures


def answers_when_known(
    fleet: Fleet,
    requests: Mapping[str, Request],
    *,
    timeout_s: float,
    again_s: float = math.inf,
    clock: Clock | None = None,
) -> Answers:
    """What each host answers: a report, or why there is none; asked again where the connection was lost.

    What came of a lost request is unknown. These requests are idempotent: asked again, the agent reads what is there
    and does only what is left. Those that are not, because hosts meet, go through `answering.ask_once`.

    Args:
        fleet: the hosts.
        requests: by host.
        timeout_s: limit of one answer.
        again_s: how long after the first question a host is still asked again.
        clock: what that is measured by; the machine's for None.
    """
    clock = clock or SystemClock()
    begun = clock.now()
    answers = fleet.ask(requests, timeout_s=timeout_s)
    for _ in range(REREADS):
        lost = [name for name, answer in answers.items() if isinstance(answer, LostConnection)]
        if not lost or clock.now() - begun > again_s:
            break
        answers.update(fleet.ask({name: requests[name] for name in lost}, timeout_s=timeout_s))
    return answers


def all_reports(answers: Mapping[str, Report | InfraError]) -> dict[str, Report]:
    """Every report.

    Raises:
        HostsFailed: of the one host that failed, or a table of several.
    """
    failures = _failures_of(answers)
    if len(failures) == 1:
        raise failures[0].error
    if failures:
        raise SeveralHostsFailed(failures, len(answers))
    return _reports_of(answers)


def reports_along(host: str, report: Report) -> Sequence[Report]:
    """The reports on the requests that a request carried along, in their order.

    Raises:
        AgentFailed: one of them could not be done.
    """
    rows = rows_of(report, "also")
    for row in rows:
        error = row.get("error")
        if isinstance(error, Mapping):
            raise AgentFailed(host, f"{error.get('what')}.", str(error.get("fix")))
    return rows


def rows_of(report: Report, key: str) -> Sequence[Mapping[str, object]]:
    """A list of maps in a report; () when it is not there."""
    rows = report.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else ()


def _failures_of(answers: Mapping[str, Report | InfraError]) -> tuple[HostFailure, ...]:
    return tuple(
        HostFailure(host=name, error=answer)
        for name, answer in answers.items()
        if isinstance(answer, InfraError)
    )


def _reports_of(answers: Mapping[str, Report | InfraError]) -> dict[str, Report]:
    return {name: answer for name, answer in answers.items() if not isinstance(answer, InfraError)}
