"""What watchers remember of a deployment that was left alone, and what `up` makes of it: docs/decisions.md 21."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.bring_up import bring_up
from infra.launch.handover import take_back
from infra.remote.failures import Unreachable
from tests.launch.scripted_fleet import make_deployment

STACK = "gb200-2p1d"


@pytest.mark.parametrize("left", ["disabled", "stopped"])
def test_what_watchers_remember_of_before_ends_nothing_that_has_just_been_proven(
    left: str, catalog: Catalog
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    fleet.stopped |= fleet.watched if left == "stopped" else set()
    fleet.watched.clear()
    fleet.unit("decode-1/1").active_state = "failed"
    bring_up(deployment, {}, tunes=False)
    assert {
        p.id for p in deployment.engines() if fleet.unit(p.id).active_state != "active"
    } == set()
    assert fleet.watched == set(deployment.units("engine"))


def test_what_runs_whole_and_was_left_alone_is_handed_over_again_as_it_is(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    begun = {p.id: fleet.unit(p.id).started_at for p in deployment.engines()}
    fleet.watched.clear()
    bring_up(deployment, {}, tunes=False)
    assert begun == {p.id: fleet.unit(p.id).started_at for p in deployment.engines()}
    assert fleet.watched == set(deployment.units("engine"))


def test_who_has_nothing_to_hand_back_is_not_asked_again_before_the_start(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    asked = [host for host, _, request in fleet.asked if request.get("action") == "disarm"]
    assert sorted(asked) == sorted(deployment.units("engine"))  # once, before files are written


def test_every_watcher_holds_before_the_first_one_ends(catalog: Catalog) -> None:
    """One that is armed still takes hosts whose watcher has ended for lost, and stops ranks that serve."""
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    hosts = set(deployment.units("engine"))
    fleet.asked.clear()
    take_back(deployment)
    told = [(request["action"], host) for host, _, request in fleet.asked]
    assert {host for _, host in told[: len(hosts)]} == hosts
    assert [action for action, _ in told] == ["hold"] * len(hosts) + ["disarm"] * len(hosts)
    fleet.asked.clear()
    fleet.fails["decode-1"] = Unreachable("decode-1", "no answer.", "Run it again.")
    with pytest.raises(HostsFailed):
        take_back(deployment)
    assert {request["action"] for _, _, request in fleet.asked} == {"hold"}


def test_a_hand_over_gives_every_host_one_key_and_the_next_one_another(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    first = set(fleet.keys.values())
    assert set(fleet.keys) == set(deployment.units("engine"))
    assert [len(key) for key in first] == [64]
    bring_up(deployment, {}, tunes=False)
    assert (
        set(fleet.keys.values()) == first
    )  # whoever watches goes on with the key that it speaks with
    take_back(deployment)
    bring_up(deployment, {}, tunes=False)
    assert len(set(fleet.keys.values()) | first) == 2


def test_watchers_with_two_keys_are_taken_back_and_given_one(catalog: Catalog) -> None:
    """A hand-over that was interrupted may have left that."""
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    fleet.keys["decode-1"] = "another"
    begun = {p.id: fleet.unit(p.id).started_at for p in deployment.engines()}
    fleet.asked.clear()
    bring_up(deployment, {}, tunes=False)
    told = {host for host, _, request in fleet.asked if request.get("action") == "disarm"}
    assert told == set(deployment.units("engine"))
    assert len(set(fleet.keys.values())) == 1
    assert begun == {p.id: fleet.unit(p.id).started_at for p in deployment.engines()}
