"""What `verify` says of watchers, and `status` of groups whose rank 0's host cannot be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.answering import AnsweringFleet
from infra.launch.handover import look_at
from infra.launch.observation import observe
from infra.launch.proof.host_drift import Check
from infra.launch.proof.watchers import check_watchers
from infra.remote.failures import Unreachable
from infra.tasks.status import status_table
from tests.launch.running_deployment import Running, make_running
from tests.launch.scripted_fleet import ScriptedFleet

STACK, GROUP = "gb200-2p1d", "decode/0"


@pytest.fixture
def running(catalog: Catalog) -> Running:
    return make_running(STACK, catalog)


def watchers(running: Running) -> list[Check]:
    deployment, fleet = running
    asking = replace(deployment, fleet=AnsweringFleet(fleet))
    return check_watchers(asking, look_at(asking))


def stop(fleet: ScriptedFleet) -> None:
    fleet.watched.remove("decode-1")
    fleet.stopped.add("decode-1")


def disable(fleet: ScriptedFleet) -> None:
    fleet.watched.remove("decode-1")


def test_every_group_is_watched_on_each_of_its_hosts(running: Running) -> None:
    checks = watchers(running)
    assert {(c.check, c.ok, c.is_drift) for c in checks} == {("watched", True, True)}
    places = [(p.host, p.group) for p in running[0].engines()]
    found = [(c.process, c.detail.partition(":")[0]) for c in checks]
    assert sorted(found) == sorted(set(places))


@pytest.mark.parametrize("leave_alone", [stop, disable])
def test_a_host_whose_watcher_is_off_differs(
    running: Running, leave_alone: Callable[[ScriptedFleet], None]
) -> None:
    leave_alone(running[1])
    (wrong,) = [check for check in watchers(running) if not check.ok]
    assert (wrong.process, wrong.ok) == ("decode-1", False)
    assert wrong.detail.startswith(f"{GROUP}: nobody would start it again: ")


def test_a_group_whose_watchers_have_not_met_differs_on_all_its_hosts(running: Running) -> None:
    running[1].group_rows[GROUP] = {"phase": "adopt", "unmet": ["decode-1"]}
    wrong = [check for check in watchers(running) if not check.ok]
    hosts = dict.fromkeys(p.host for p in running[0].engines() if p.group == GROUP)
    assert [check.process for check in wrong] == list(hosts)
    assert {check.detail for check in wrong} == {
        f"{GROUP}: not watched yet: decode-1 must be heard of"
    }


def test_of_a_group_whose_rank_0_s_host_is_away_nothing_is_claimed(running: Running) -> None:
    deployment, fleet = running
    fleet.fails["decode-0"] = Unreachable("decode-0", "no answer.", "Look at it.")
    unknown = [check for check in watchers(running) if check.ok is None]
    assert {check.detail for check in unknown} == {f"{GROUP}: not known: decode-0 cannot be asked"}
    rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    member = next(row for row in rows if row.host == "decode-1")
    assert (member.epoch, member.restarts) == (None, None)
    assert {row.epoch for row in rows if row.host == "prefill-0"} == {0, 1}  # the router, a group
    assert [row.as_document()["epoch"] for row in rows if row.host == "decode-2"][:1] == [None]
    assert status_table([member]).count("unknown") == 2


def test_watchers_that_do_not_understand_each_other_differ(running: Running) -> None:
    running[1].keys["decode-1"] = "another"
    wrong = [check for check in watchers(running) if not check.ok]
    assert {"decode-0", "decode-1"} <= {check.process for check in wrong}
    assert all("`fab up` gives all one" in check.detail for check in wrong)
