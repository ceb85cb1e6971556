"""A lost connection leaves unknown what came of a request: hosts are asked again, where that harms nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.answering import AnsweringFleet, ask_once
from infra.launch.bring_up import bring_up
from infra.launch.fleet import REREADS, Answers, Request, answers_when_known, ask_all
from infra.launch.observation import AGAIN_S, UNKNOWN, observe
from infra.launch.preflight.waves import look, look_further
from infra.launch.releases import stacks_there
from infra.remote.failures import LostConnection
from infra.remote.pulse import DEAD_AFTER_S
from tests.launch.scripted_fleet import FakeClock, make_deployment

STACK = "gb200-2p1d"
ONE: Mapping[str, Request] = {"a": {"operation": "read"}, "b": {"operation": "read"}}
# Within this a dead peer is known to be dead.
NOTICED_S = 15.0


class Losing:
    """Two hosts; the connection to the second is lost some times, each time after a while."""

    def __init__(self, times: int, after_s: tuple[float, ...] = (0.0,)) -> None:
        self.clock = FakeClock()
        self.asked: list[list[str]] = []
        self._times = times
        self._after_s = after_s

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {name: {"files": {}, "records": {}} for name in requests}
        if "b" in requests and len(self.asked) < self._times:
            self.clock.at += self._after_s[min(len(self.asked), len(self._after_s) - 1)]
            answers["b"] = LostConnection("b", "the connection was lost.", "Run it again.")
        self.asked.append(list(requests))
        return answers


@pytest.mark.fault
@pytest.mark.parametrize("is_answering", [False, True])
def test_the_host_that_was_lost_is_asked_again_and_no_other(*, is_answering: bool) -> None:
    losing = Losing(times=REREADS)
    fleet = AnsweringFleet(losing) if is_answering else losing
    assert set(ask_all(fleet, ONE, timeout_s=1.0)) == {"a", "b"}
    assert losing.asked == [["a", "b"], *[["b"]] * REREADS]


def test_it_is_given_up_in_the_end() -> None:
    losing = Losing(times=REREADS + 1)
    with pytest.raises(LostConnection):
        ask_all(losing, ONE, timeout_s=1.0)
    again = Losing(times=REREADS + 1)
    answering = AnsweringFleet(again)
    assert set(ask_all(answering, ONE, timeout_s=1.0)) == {"a"}
    assert set(answering.away) == {"b"}
    assert len(losing.asked) == len(again.asked) == REREADS + 1


def test_where_hosts_meet_nobody_is_asked_again() -> None:
    losing, other = Losing(times=1), Losing(times=1)
    with pytest.raises(HostsFailed):
        ask_once(losing, ONE, timeout_s=1.0)
    answering = AnsweringFleet(other)
    assert set(ask_once(answering, ONE, timeout_s=1.0)) == {"a"}
    assert set(answering.away) == {"b"}
    assert losing.asked == other.asked == [["a", "b"]]


@pytest.mark.fault
@pytest.mark.parametrize(
    ("after_s", "num_asked"),
    [((0.5,), REREADS + 1), ((2.0,), 2), ((DEAD_AFTER_S,), 1), ((3.0, DEAD_AFTER_S), 2)],
)
def test_whoever_only_looks_asks_a_silent_host_no_second_time(
    after_s: tuple[float, ...], num_asked: int
) -> None:
    losing = Losing(times=9, after_s=after_s)
    begun = losing.clock.now()
    answers_when_known(losing, ONE, timeout_s=60.0, again_s=AGAIN_S, clock=losing.clock)
    assert len(losing.asked) == num_asked
    assert losing.clock.now() - begun <= NOTICED_S


def test_the_last_question_of_a_look_leaves_time_to_notice_a_dead_host() -> None:
    assert AGAIN_S + DEAD_AFTER_S <= NOTICED_S


def test_other_stacks_are_looked_for_again() -> None:
    losing = Losing(times=10)
    assert stacks_there(losing, ["b"], "s", timeout_s=1.0) == ()
    assert len(losing.asked) == REREADS + 1


@pytest.mark.fault
def test_status_asks_again_before_it_says_that_nothing_is_known(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    hosts = [host.name for host in deployment.plan.hosts]
    for times, state in ((1, "active"), (REREADS, "active"), (REREADS + 1, UNKNOWN)):
        fleet.lose = [("decode-0", "status")] * times
        rows = observe(fleet, hosts, STACK, timeout_s=5.0)
        assert {row.state for row in rows if row.host == "decode-0"} == {state}
        assert {row.state for row in rows if row.host != "decode-0"} == {"active"}


@pytest.mark.fault
def test_the_first_look_of_a_preflight_is_repeated_and_its_meetings_are_not(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    answering = AnsweringFleet(fleet)
    deployment = replace(deployment, fleet=answering)
    fleet.lose = [("decode-0", "facts")]
    scene = look(deployment, catalog, "full", {}).scene
    assert scene.away == {}
    met: list[str] = []

    def reach(host: str, _request: Mapping[str, object]) -> Mapping[str, object]:
        met.append(host)
        return {"dials": []}

    operations = fleet._operations()
    fleet._operations = lambda: {**operations, "reach": reach}  # type: ignore[method-assign]
    fleet.lose = [("decode-1", "reach")]
    assert set(look_further(deployment, scene, 0.0, 1.0).away) == {"decode-1"}
    assert met.count("decode-1") == 1
