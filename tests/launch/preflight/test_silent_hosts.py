"""Hosts that cannot be asked, or fall silent in the middle: what the preflight says of them, and of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.launch.answering import AnsweringFleet
from infra.launch.fleet import Answers, Fleet, Request
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.table import AS_WANTED, judge
from infra.launch.preflight.waves import look, look_further
from infra.remote.failures import LoginRefused, LostConnection, Unreachable
from infra.render.dialing import planned_dials
from tests.launch.preflight.scenes import healthy
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

RACK = "gb200-2p1d"
LOADS = frozenset({"decode-0/0"})
AWAY = Unreachable("decode-3", "192.0.2.6 port 22 refuses connections.", "Start sshd there.")
FIX = (
    f"Start sshd there. For a machine that is gone: `fab replace-host decode-3 NEW --stack {RACK}`."
)


class Silenced:
    """A fleet of which one host falls silent when hosts are asked to dial each other."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self._fleet = fleet
        self._host = host
        self.asked: Mapping[str, Request] = {}

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        if any(request["operation"] == "reach" for request in requests.values()):
            self.asked = requests
            answers: Answers = {host: {"dials": _dialled(one)} for host, one in requests.items()}
            if self._host in requests:
                answers[self._host] = LostConnection(self._host, "the connection was lost.", "")
            return answers
        return self._fleet.ask(requests, timeout_s=timeout_s)


def rows(request: Request, key: str) -> list[dict[str, object]]:
    found = request[key]
    assert isinstance(found, list)
    return found


def _dialled(request: Request) -> list[dict[str, object]]:
    return [{"to": row["to"], "port": row["port"], "ok": True} for row in rows(request, "dial")]


def judged(
    catalog: Catalog,
    break_fleet: Callable[[ScriptedFleet], None] = lambda _: None,
    falls_silent: str = "nobody",
) -> tuple[tuple[Finding, ...], list[str]]:
    """The findings of a whole preflight of the rack, and what was said meanwhile."""
    deployment, fleet, said = make_deployment(RACK, catalog)
    break_fleet(fleet)
    answering = AnsweringFleet(Silenced(fleet, falls_silent))
    deployment = replace(deployment, fleet=answering)
    scene = look(deployment, catalog, "full", {}).scene
    return judge(look_further(deployment, scene, 0.0, 1.0)), said


@pytest.mark.parametrize("stack", [RACK, "h200-2n-tp16", "a2-2n-dp4tp4", "mi355x-tp8"])
def test_the_others_are_judged_as_if_it_were_not_there(stack: str, catalog: Catalog) -> None:
    whole = healthy(stack, catalog)
    for gone in {next(iter(whole.hosts)), list(whole.hosts)[-1]}:
        hosts = {name: host for name, host in whole.hosts.items() if name != gone}
        error = Unreachable(gone, "no answer.", "Look at it.")
        found = judge(replace(whole, hosts=hosts, away={gone: error}))
        told = [(one.severity, one.check) for one in found if one.host == gone]
        assert told == [("block", "host-answers")]
        others = {(one.host, one.check): one for one in found if one.host != gone}
        before = {(one.host, one.check): one for one in judge(whole) if one.host != gone}
        # a host alone has nobody to be unlike
        missing = {check for _, check in before.keys() - others.keys()}
        assert missing <= {"rdma-rails"}
        assert all(others[key].severity == before[key].severity for key in others)


def test_a_host_that_lives_is_not_to_be_replaced(catalog: Catalog) -> None:
    whole = healthy(RACK, catalog)
    hosts = {name: host for name, host in whole.hosts.items() if name != "decode-3"}
    refused = LoginRefused("decode-3", "no key is taken.", "Add one.")
    found = judge(replace(whole, hosts=hosts, away={"decode-3": refused}))
    assert [one.fix for one in found if one.host == "decode-3"] == ["Add one."]


def test_a_host_that_is_away_is_one_finding_and_its_ports_alone_are_not_dialled(
    catalog: Catalog,
) -> None:
    def cut(fleet: ScriptedFleet) -> None:
        fleet.fails["decode-3"] = AWAY

    found, said = judged(catalog, cut)
    own = [one for one in found if one.host == "decode-3"]
    assert [(one.check, one.severity, one.fix) for one in own] == [("host-answers", "block", FIX)]
    assert own[0].observed == "192.0.2.6 port 22 refuses connections"
    dialled = {one.host: one.observed for one in found if one.check == "peer-ports"}
    assert set(dialled) == {"prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2"}
    assert "of or from decode-3, which cannot be asked" in dialled["decode-0"]
    assert any(line.endswith("ports of or from decode-3 are not dialled") for line in said)
    group = {one.host: one.observed for one in found if one.check == "group-collective"}
    assert group["decode-1"] == "not run: decode-3 cannot be asked"


def test_ports_that_an_engine_which_loads_will_open_are_left_to_it(catalog: Catalog) -> None:
    """Somebody who listens there in its place would have it end: "address already in use"."""
    deployment, fleet, said = make_deployment(RACK, catalog)
    reaching = Silenced(fleet, "nobody")
    deployment = replace(deployment, fleet=AnsweringFleet(reaching))
    scene = look(deployment, catalog, "full", {}).scene
    own = {
        dial.port
        for dial in planned_dials(scene.plan)
        if dial.process == "decode-0/0" and dial.purpose == "planned"
    }
    opened, *unopened = sorted(own)
    listening = ({"port": opened},)
    hosts = {**scene.hosts, "decode-0": replace(scene.hosts["decode-0"], listening=listening)}
    scene = replace(scene, hosts=hosts, running=LOADS)
    found = judge(look_further(deployment, scene, 0.0, 1.0))
    listens = {int(str(row["port"])) for row in rows(reaching.asked["decode-0"], "listen")}
    dialled = {
        int(str(row["port"]))
        for request in reaching.asked.values()
        for row in rows(request, "dial")
        if row["to"] == "decode-0"
    }
    assert opened in dialled
    assert not (listens | dialled) & set(unopened)
    assert listens - own, "ports of those that do not run are tried"
    (told,) = [one for one in found if (one.check, one.host) == ("peer-ports", "decode-0")]
    assert told.severity == "pass"
    assert told.observed.endswith("which decode-0/0 runs for and has not opened yet")
    assert [line for line in said if line.endswith("ports of engines that load are not dialled")]


def test_what_was_found_stays_when_a_host_falls_silent_in_the_middle(catalog: Catalog) -> None:
    found, _ = judged(catalog, falls_silent="prefill-1")
    own = {one.check: one for one in found if one.host == "prefill-1"}
    assert own["host-answers"].observed == "the connection was lost"
    assert own["ports-free"].severity == "pass"  # from when it answered
    dialled = {one.host: one for one in found if one.check == "peer-ports"}
    assert dialled["decode-0"].severity == "pass"
    assert dialled["decode-0"].observed != AS_WANTED


def test_of_several_requests_in_one_an_error_is_that_host_s_alone(catalog: Catalog) -> None:
    def without_systemd(fleet: ScriptedFleet) -> None:
        fleet.refuses["prefill-0", "units"] = {"what": "systemd does not run here", "fix": ""}

    found, _ = judged(catalog, without_systemd)
    told = [one for one in found if one.check == "host-answers" and one.severity == "block"]
    assert [(one.host, one.observed) for one in told] == [
        ("prefill-0", "systemd does not run here")
    ]


def test_when_nobody_answers_there_is_nothing_to_judge(catalog: Catalog) -> None:
    def cut(fleet: ScriptedFleet) -> None:
        fleet.fails = dict.fromkeys((host.name for host in fleet.plan.hosts), AWAY)

    with pytest.raises(InfraError, match="6 of 6 hosts failed"):
        judged(catalog, cut)
