"""One host cannot be asked: what `verify` says of its processes, and that it proves all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.engines.capabilities import CAPABILITIES
from infra.errors import HostsFailed
from infra.launch.answering import AnsweringFleet
from infra.launch.bring_up import bring_up
from infra.launch.fleet import Answers, Request
from infra.launch.proof.host_drift import Check
from infra.launch.proof.questions import FORMS
from infra.launch.proof.verification import verify
from infra.remote.failures import LostConnection, Unreachable
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

STACK = "gb200-2p1d"
# Two prefill replicas of one host each, one decode replica over two hosts.
SMALL = (
    "platform=existing-hosts",
    "roles.decode.data_parallel=8",
    "defaults.max_model_len=32768",
)


class Dying:
    """A fleet whose host is lost when it is asked for an operation for the n-th time, and from then on."""

    def __init__(self, fleet: ScriptedFleet, host: str, operation: str, nth: int) -> None:
        self._fleet = fleet
        self._host = host
        self._operation = operation
        self._left = nth

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        if requests.get(self._host, {}).get("operation") == self._operation:
            self._left -= 1
        answers = self._fleet.ask(requests, timeout_s=timeout_s)
        if self._left <= 0 and self._host in requests:
            answers[self._host] = LostConnection(self._host, "the connection was lost.", "")
        return answers


def verified(
    catalog: Catalog, gone: str, *, dies: tuple[str, int] | None = None
) -> tuple[list[Check], AnsweringFleet]:
    """The checks of a deployment that came up, and of which one host has gone since, or goes in the middle."""
    deployment, fleet, _ = make_deployment(STACK, catalog, sets=SMALL)
    bring_up(deployment, {}, tunes=False)
    if dies is None:
        fleet.fails[gone] = Unreachable(gone, "no answer.", "Look at it.")
        answering = AnsweringFleet(fleet)
    else:
        answering = AnsweringFleet(Dying(fleet, gone, *dies))
    found = verify(replace(deployment, fleet=answering), {}, 5.0, catalog)
    return found, answering


def wrong(found: list[Check]) -> list[Check]:
    """What is wrong, but for capabilities that scripted engines do not have."""
    return [
        check
        for check in found
        if check.is_wrong and check.check not in {*CAPABILITIES[1:], *FORMS}
    ]


@pytest.mark.parametrize("gone", ["decode-1", "prefill-1"])
def test_its_processes_are_not_known_and_everything_else_is_verified(
    catalog: Catalog, gone: str
) -> None:
    found, answering = verified(catalog, gone)
    assert list(answering.away) == [gone]
    unknown = [check for check in found if check.ok is None and check.check != "rdma-counters"]
    told = {check.process for check in unknown if not check.check.endswith("transport")}
    assert told == {gone, *(f"{gone}/{number}" for number in range(4))}
    assert {c.check for c in unknown if c.process == gone} == {
        "tuning", "files", "images", "weights", "watched",
    }  # fmt: skip
    own = [check.check for check in unknown if check.process == f"{gone}/0"]
    assert own[0] == "running"
    assert "chat" in own
    assert wrong(found) == []
    asked = {check.process for check in found if check.check == "chat" and check.ok}
    assert {"prefill-0/0", "decode-0/3", "router/0"} <= asked


def test_of_the_router_nothing_is_known_when_its_host_is_away(catalog: Catalog) -> None:
    found, _ = verified(catalog, "prefill-0")
    router = [check for check in found if check.process == "router/0"]
    assert {check.ok for check in router} == {None}
    assert router[0].detail == "not known: prefill-0 cannot be asked"
    # decode ranks are asked with the prefill replica that answers
    assert {c.ok for c in found if c.process == "decode-0/0" and c.check == "chat"} == {True}


def test_a_host_that_goes_in_the_middle_keeps_what_was_found(catalog: Catalog) -> None:
    found, answering = verified(catalog, "decode-1", dies=("probe", 2))
    assert list(answering.away) == ["decode-1"]
    assert {c.ok for c in found if c.process == "decode-1"} == {True}  # its state was seen
    chat = {c.process: c.ok for c in found if c.check == "chat"}
    assert (chat["decode-1/0"], chat["decode-0/0"]) == (True, True)
    later = {c.ok for c in found if c.process == "decode-1/0" and c.check == "vision"}
    assert later == {None}
    assert wrong(found) == []


def test_where_nobody_answers_there_is_nothing_to_verify(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog, sets=SMALL)
    fleet.fails = {h.name: Unreachable(h.name, "no answer.", "") for h in deployment.plan.hosts}
    answering = AnsweringFleet(fleet)
    with pytest.raises(HostsFailed, match="4 of 4 hosts failed"):
        verify(replace(deployment, fleet=answering), {}, 5.0, catalog)
