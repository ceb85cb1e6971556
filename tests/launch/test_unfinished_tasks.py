"""A host that is lost while a deployment is being changed: every process is told as it is then, and the failure."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from infra.remote.failures import Unreachable
from infra.tasks.completion import Completion
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.unfinished import Begun, tell_unfinished
from tests.launch.scripted_fleet import FakeUnit, ScriptedFleet, make_deployment

STACK = "h200-2n-tp16"
AGAIN = f"--stack {STACK}"
LOST = Unreachable("unified-1", "unified-1 does not answer.", "Look at it.")


def replacing(catalog: Catalog) -> tuple[Deployment, ScriptedFleet, list[str]]:
    """A release that runs and is watched, and another one whose decode ranks differ, not yet brought up."""
    first, fleet, said = make_deployment("gb200-2p1d", catalog)
    bring_up(first, {}, tunes=False)
    second, _, _ = make_deployment("gb200-2p1d", catalog, sets=("roles.decode.max_num_seqs=7",))
    return replace(second, fleet=fleet, clock=first.clock, say=said.append), fleet, said


@pytest.fixture
def begun(catalog: Catalog) -> tuple[Deployment, ScriptedFleet, Begun]:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    has_begun = Begun()
    return replace(deployment, decided=has_begun), fleet, has_begun


def output() -> Output:
    return Output(
        wants_json=True,
        has_colour=False,
        complete=Completion(lambda: Options({})),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )


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
    code = tell_unfinished(deployment, told, caught.value, has_begun=has_begun.is_so, again=AGAIN)
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
        tell_unfinished(deployment, output(), caught.value, has_begun=False, again=AGAIN)


def test_what_is_not_ready_is_always_told(begun: tuple[Deployment, ScriptedFleet, Begun]) -> None:
    deployment, _, _ = begun
    told = output()
    error = NotReady("unified-0/0", "It does not serve.", "See its log.")
    assert tell_unfinished(deployment, told, error, has_begun=False, again=AGAIN) == 5
    assert json.loads(told.stdout.getvalue())["errors"][0]["where"] == "unified-0/0"  # type: ignore[attr-defined]


def test_a_replacement_that_fails_half_way_tells_whom_nobody_watches_and_the_way_out(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = replacing(catalog)
    path = "/etc/moe-infra/gb200-2p1d/engine-0/launch"
    fleet.wrong_items["decode-0", f"file:{path}"] = ("failed", "No space left on device (ENOSPC)")
    with pytest.raises(HostsFailed, match="No space left") as caught:
        bring_up(deployment, {}, tunes=False, replaces=True)
    told = output()
    again = "--stack gb200-2p1d"
    assert tell_unfinished(deployment, told, caught.value, has_begun=True, again=again) == 4
    said = told.stderr.getvalue()  # type: ignore[attr-defined]
    assert "Nobody watches the ranks there" in said
    assert "prefill-0, prefill-1" in said  # whose groups did not change, and serve on
    assert f"`fab up {again}`" in said


def test_images_are_brought_while_what_they_replace_serves_and_is_watched(catalog: Catalog) -> None:
    deployment, fleet, said = replacing(catalog)
    real, watched = fleet._state, set(fleet.watched)
    image = next(item.id for item in deployment.states["decode-0"].items if item.group == "images")
    fleet.wrong_items["decode-0", image] = ("changed", "it is not there")

    def fills(host: str, request: Mapping[str, object]) -> Mapping[str, object]:
        if request["mode"] == "apply":
            fleet.wrong_items["decode-0", image] = ("failed", "no space left on device")
        return real(host, request)

    fleet._state = fills  # type: ignore[method-assign]
    before = {unit.process.id: unit.active_state for unit in fleet.units.values()}
    with pytest.raises(HostsFailed, match="no space left"):
        bring_up(deployment, {}, tunes=False, replaces=True)
    assert {unit.process.id: unit.active_state for unit in fleet.units.values()} == before
    assert fleet.watched == watched != set()
    assert [line for line in said if line.startswith("pulling ")]
    fleet._state = real  # type: ignore[method-assign]
    fleet.wrong_items.clear()
    bring_up(deployment, {}, tunes=False, replaces=True)
    assert fleet.watched == watched
