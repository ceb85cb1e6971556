"""A host that is lost while a deployment is being changed: every process is told as it is then, and the failure."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from infra.remote.failures import Unreachable
from infra.tasks.output import Output
from infra.tasks.unfinished import Begun, tell_unfinished
from tests.launch.scripted_fleet import FakeUnit, ScriptedFleet, make_deployment

STACK = "h200-2n-tp16"
LOST = Unreachable("unified-1", "unified-1 does not answer.", "Look at it.")


@pytest.fixture
def begun(catalog: Catalog) -> tuple[Deployment, ScriptedFleet, Begun]:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    has_begun = Begun()
    return replace(deployment, decided=has_begun), fleet, has_begun


def output() -> Output:
    return Output(
        wants_json=True, has_colour=False, stdout=io.StringIO(), stderr=io.StringIO()
    )  # fmt: skip


def test_a_host_that_is_lost_on_the_way_is_told_beside_the_others(
    begun: tuple[Deployment, ScriptedFleet, Begun],
) -> None:
    deployment, fleet, has_begun = begun

    def lose(_unit: FakeUnit) -> None:
        fleet.fails["unified-1"] = LOST

    fleet.on_start["unified-0/0"] = lose
    with pytest.raises(HostsFailed) as caught:
        bring_up(deployment, {}, tunes=False)
    told = output()
    code = tell_unfinished(deployment, told, caught.value, has_begun=has_begun.is_so)
    assert code == 4
    document = json.loads(told.stdout.getvalue())  # type: ignore[attr-defined]
    assert document["ok"] is False
    assert [error["where"] for error in document["errors"]] == ["unified-1"]
    states = {row["host"]: row["state"] for row in document["processes"]}
    assert states["unified-0"] == "active"
    assert states["unified-1"] == "unknown"


def test_before_anything_was_changed_the_failure_is_all(
    begun: tuple[Deployment, ScriptedFleet, Begun],
) -> None:
    deployment, fleet, has_begun = begun
    fleet.fails["unified-1"] = LOST
    with pytest.raises(HostsFailed) as caught:
        bring_up(deployment, {}, tunes=False)
    assert not has_begun.is_so
    with pytest.raises(HostsFailed, match="unified-1 does not answer"):
        tell_unfinished(deployment, output(), caught.value, has_begun=False)


def test_what_is_not_ready_is_always_told(begun: tuple[Deployment, ScriptedFleet, Begun]) -> None:
    deployment, _, _ = begun
    told = output()
    error = NotReady("unified-0/0", "It does not serve.", "See its log.")
    assert tell_unfinished(deployment, told, error, has_begun=False) == 5
    assert json.loads(told.stdout.getvalue())["errors"][0]["where"] == "unified-0/0"  # type: ignore[attr-defined]
