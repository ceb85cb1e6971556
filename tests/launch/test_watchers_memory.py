"""What watchers remember of a deployment that was left alone, and what `up` makes of it: docs/decisions.md 21."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
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
