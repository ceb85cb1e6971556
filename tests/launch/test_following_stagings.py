"""Stagings that others started, end or lose sight of: what whoever follows them is told, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Answers, Request
from infra.launch.staging.checkpoints import deep_check, stage
from infra.launch.staging.order import Outcome, Staging
from infra.launch.staging.plan import Checkpoint, wanted_checkpoints
from infra.launch.staging.watch import LOST_S
from infra.remote.failures import LostConnection, Unreachable
from tests.launch.scripted_fleet import FakeClock, make_deployment

HOSTS = ("unified-0", "unified-1")
FILES = [
    {"name": "a", "size_bytes": 5, "sha256": "0" * 64},
    {"name": "b", "size_bytes": 2, "sha256": "0" * 64},
]
RUNNING = {"state": "running", "is_running": True, "files": FILES}
FETCHING = {**RUNNING, "status": {"phase": "fetching", "operator": "ann@desk", "num_files": 2}}
DONE = {**RUNNING, "status": {"phase": "complete", "num_files": 2, "size_bytes": 7}}
CHECKING = {**RUNNING, "status": {"phase": "verifying", "operator": "ann@desk"}}
THERE = {"state": "complete", "is_running": False, "status": None, "files": FILES}
AWAY = Unreachable("unified-1", "unified-1 does not answer.", "Look at it.")
Row = Mapping[str, Any]


class Followed:
    """Hosts whose stagings go on by themselves: each look takes the host's next row, the last one again and again."""

    def __init__(self, **looks: Sequence[Row | Exception]) -> None:
        self.clock = FakeClock()
        self.said: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.lost_starts = 0
        self._looks = {name.replace("_", "-"): list(rows) for name, rows in looks.items()}

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {}
        for host, request in requests.items():
            action = str(request["action"])
            self.asked.append((host, action))
            if action == "look" and request["ports"]:
                answers[host] = {"checkpoints": [], "ports_taken": []}
            elif action == "look":
                rows = self._looks[host]
                row: Any = rows.pop(0) if len(rows) > 1 else rows[0]
                answers[host] = row if isinstance(row, Exception) else {"checkpoints": [row]}  # type: ignore[assignment]
            elif action == "start" and self.lost_starts:
                self.lost_starts -= 1
                answers[host] = LostConnection(host, "the connection was lost.", "Run it again.")
            else:
                answers[host] = {"files": FILES, "started": True, "ended": []}
        return answers

    def staging(self) -> Staging:
        pace = Pace(limits=Limits(), clock=self.clock, say=self.said.append)
        addresses = dict.fromkeys(HOSTS, "192.0.2.1")
        return Staging(
            fleet=self, addresses=addresses, secrets={}, pace=pace, operator="me", token="t"
        )

    def actions(self, host: str) -> list[str]:
        return [action for name, action in self.asked if name == host and action != "look"]


@pytest.fixture
def wanted(catalog: Catalog) -> tuple[Checkpoint, ...]:
    deployment, _, _ = make_deployment("a2-2n-dp4tp4", catalog)
    return wanted_checkpoints(deployment.states, catalog, None, is_shared=False)[:1]


def outcome_on(host: str, outcomes: Sequence[Outcome]) -> Outcome:
    return next(one for one in outcomes if one.host == host)


def test_what_another_operator_has_ended_when_it_was_whole_is_staged(
    wanted: tuple[Checkpoint, ...],
) -> None:
    fleet = Followed(unified_0=[FETCHING, DONE], unified_1=[FETCHING, FETCHING, THERE])
    outcomes = stage(fleet.staging(), wanted)
    assert [one.state for one in outcomes] == ["staged", "staged"]
    other = outcome_on("unified-1", outcomes)
    assert (other.num_files, other.size_bytes) == (2, 7)
    assert other.why == "complete there; somebody else has ended its staging"
    assert not [line for line in fleet.said if "failed" in line]


@pytest.mark.parametrize("state", ["partial", "absent", "damaged"])
def test_what_somebody_has_ended_on_the_way_is_not_called_killed(
    wanted: tuple[Checkpoint, ...], state: str
) -> None:
    gone = {**THERE, "state": state}
    fleet = Followed(unified_0=[FETCHING, DONE], unified_1=[FETCHING, FETCHING, gone])
    failed = outcome_on("unified-1", stage(fleet.staging(), wanted))
    assert failed.state == "failed"
    assert "somebody else has ended it" in failed.why
    assert "killed" not in failed.why


@pytest.mark.fault
def test_what_has_ended_without_a_word_is_called_killed(wanted: tuple[Checkpoint, ...]) -> None:
    ended = {**FETCHING, "state": "partial", "is_running": False}
    fleet = Followed(unified_0=[FETCHING, DONE], unified_1=[FETCHING, ended])
    failed = outcome_on("unified-1", stage(fleet.staging(), wanted))
    assert "killed" in failed.why
    assert f"moe-staging-{wanted[0].job}" in failed.why


@pytest.mark.fault
def test_a_host_that_is_given_up_is_not_stopped_when_it_is_back(
    wanted: tuple[Checkpoint, ...],
) -> None:
    silent: list[Row | Exception] = [FETCHING, *[AWAY] * 200]
    slow: list[Row | Exception] = [FETCHING] * 150
    fleet = Followed(unified_0=[*slow, DONE], unified_1=silent)
    begun = fleet.clock.now()
    outcomes = stage(fleet.staging(), wanted)
    assert fleet.clock.now() - begun > LOST_S
    assert fleet.actions("unified-0") == ["end"]
    assert fleet.actions("unified-1") == []
    lost = outcome_on("unified-1", outcomes)
    assert lost.state == "failed"
    assert lost.why.startswith(f"cannot be asked for {LOST_S:g} s, its work goes on: ")
    assert len([line for line in fleet.said if "given up" in line]) == 1


def test_a_start_whose_connection_was_lost_is_asked_again(wanted: tuple[Checkpoint, ...]) -> None:
    absent = {**THERE, "state": "absent", "files": [], "free_bytes": 1 << 40}
    fleet = Followed(unified_0=[absent, DONE], unified_1=[absent, DONE])
    fleet.lost_starts = 3
    outcomes = stage(fleet.staging(), wanted)
    assert [one.state for one in outcomes] == ["staged", "staged"]
    assert sum(action == "start" for _, action in fleet.asked) == 5


@pytest.mark.fault
def test_a_start_of_which_nothing_is_known_is_not_stopped(wanted: tuple[Checkpoint, ...]) -> None:
    absent = {**THERE, "state": "absent", "files": [], "free_bytes": 1 << 40}
    fleet = Followed(unified_0=[absent, DONE], unified_1=[absent, DONE])
    fleet.lost_starts = 1000
    outcomes = stage(fleet.staging(), wanted)
    assert [one.state for one in outcomes] == ["failed", "failed"]
    assert not [action for _, action in fleet.asked if action == "end"]


CHECKED = {"phase": "checked", "num_files": 2, "size_bytes": 7, "damaged": []}


@pytest.mark.parametrize(
    ("work", "last", "state", "why"),
    [
        (stage, {**THERE, "status": CHECKED}, "staged", ""),
        (stage, {**THERE, "status": {**CHECKED, "damaged": ["b is"]}}, "failed", "b is"),
        (deep_check, DONE, "failed", "was staged meanwhile"),
        (deep_check, THERE, "failed", "somebody else has ended it"),
        (deep_check, {**THERE, "status": CHECKED}, "complete", "verified"),
    ],
)
def test_a_check_is_no_staging_and_a_staging_no_check(
    wanted: tuple[Checkpoint, ...],
    work: Callable[[Staging, Sequence[Checkpoint]], list[Outcome]],
    last: Row,
    state: str,
    why: str,
) -> None:
    fleet = Followed(unified_0=[CHECKING, last], unified_1=[CHECKING, CHECKING, last])
    outcomes = work(fleet.staging(), wanted)
    assert [one.state for one in outcomes] == [state, state]
    assert all(why in one.why for one in outcomes)
    assert all(one.why != "None" for one in outcomes)
    ends = [action for _, action in fleet.asked if action == "end"]
    assert len(ends) == (0 if last is DONE else 2), (
        "a staging may serve others, so no check ends it"
    )


def test_a_check_that_has_ended_but_still_runs_is_waited_for(
    wanted: tuple[Checkpoint, ...],
) -> None:
    ending = {**RUNNING, "status": CHECKED}
    fleet = Followed(
        unified_0=[CHECKING, ending, ending, {**THERE, "status": CHECKED}],
        unified_1=[CHECKING, {**THERE, "status": CHECKED}],
    )
    assert [one.state for one in stage(fleet.staging(), wanted)] == ["staged", "staged"]
