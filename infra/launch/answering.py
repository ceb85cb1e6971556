"""A fleet without the hosts that have failed: what the others say is worth having."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from infra.errors import InfraError
from infra.launch.fleet import (
    Answers,
    Fleet,
    Report,
    Request,
    all_reports,
    answers_when_known,
    ask_all,
)
from infra.remote.failures import HostFailure
from infra.remote.openings import MAX_OPENINGS

T = TypeVar("T")

# Asked of a host only to have a connection and an agent there.
PRESENCE: Request = {"operation": "read", "paths": []}


class AnsweringFleet:
    """The hosts of a fleet as long as they answer; whoever fails is left out from then on.

    For tasks that only look: they go on with the hosts that answer, and tell `away` beside what those say.
    """

    def __init__(self, fleet: Fleet) -> None:
        """Nobody is away yet.

        Args:
            fleet: all hosts.
        """
        self._fleet = fleet
        self._asked: set[str] = set()
        self._away: dict[str, InfraError] = {}

    @property
    def away(self) -> dict[str, InfraError]:
        """Why a host is left out, by host."""
        return dict(self._away)

    @property
    def failures(self) -> tuple[HostFailure, ...]:
        """The same, as a table has it."""
        return tuple(HostFailure(host=host, error=error) for host, error in self._away.items())

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """The reports of those hosts that give one, asked again where a connection was lost; see `Fleet`."""
        asked = self._left(requests)
        return self._taken(answers_when_known(self._fleet, asked, timeout_s=timeout_s))

    def ask_once(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """The same, but nobody is asked again."""
        return self._taken(self._fleet.ask(self._left(requests), timeout_s=timeout_s))

    def _left(self, requests: Mapping[str, Request]) -> dict[str, Request]:
        asked = {host: request for host, request in requests.items() if host not in self._away}
        self._asked |= set(asked)
        return asked

    def _taken(self, answers: Answers) -> Answers:
        self.leave_out({h: error for h, error in answers.items() if isinstance(error, InfraError)})
        return {host: answer for host, answer in answers.items() if host not in self._away}

    def leave_out(self, errors: Mapping[str, InfraError]) -> None:
        """Ask some hosts no more: what they said is a failure."""
        self._away.update(errors)

    @property
    def is_silent(self) -> bool:
        """Whether hosts were asked, and none of them has answered."""
        return bool(self._asked) and self._asked <= set(self._away)


def ask_once(
    fleet: Fleet, requests: Mapping[str, Request], *, timeout_s: float
) -> dict[str, Report]:
    """The report of every host of a request that cannot be repeated: hosts meet, and the others have gone by then.

    More hosts than are connected to at once are all connected to first: those whose turn came late would miss the
    others.

    Raises:
        HostsFailed: of the one host that failed, or a table of several; of a fleet that leaves nobody out.
    """
    if len(requests) > MAX_OPENINGS:
        ask_all(fleet, dict.fromkeys(requests, PRESENCE), timeout_s=timeout_s)
    asked = fleet.ask_once if isinstance(fleet, AnsweringFleet) else fleet.ask
    return all_reports(asked(requests, timeout_s=timeout_s))


def read_each(
    fleet: Fleet, reports: Mapping[str, Report], read: Callable[[str, Report], T]
) -> dict[str, T]:
    """What is read in each report, by host; one that tells of a failure there hides no other.

    Args:
        fleet: that was asked; it leaves such a host out, if it does so at all.
        reports: by host.
        read: from host and report; raises one of ours where the host has failed.

    Raises:
        HostsFailed: a report tells of a failure, and the fleet leaves nobody out.
    """
    found: dict[str, T] = {}
    errors: dict[str, InfraError] = {}
    for host, report in reports.items():
        try:
            found[host] = read(host, report)
        except InfraError as error:
            errors[host] = error
    if isinstance(fleet, AnsweringFleet):
        fleet.leave_out(errors)
    else:
        all_reports(errors)
    return found


def refuse_silence(fleet: Fleet) -> None:
    """Fail while there is nothing to tell.

    Raises:
        HostsFailed: the fleet leaves out who does not answer, and that is everybody.
    """
    if isinstance(fleet, AnsweringFleet) and fleet.is_silent:
        all_reports(fleet.away)


def away_of(fleet: Fleet) -> Mapping[str, InfraError]:
    """The hosts that a fleet leaves out, and why; {} of one that leaves out none."""
    return fleet.away if isinstance(fleet, AnsweringFleet) else {}


def names_of(hosts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`: hosts in a sentence."""
    listed = list(hosts)
    if len(listed) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(listed)
    return f"{', '.join(listed[:-1])} and {listed[-1]}"
