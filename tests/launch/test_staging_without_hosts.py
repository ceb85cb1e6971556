"""Hosts that cannot be asked while checkpoints are looked at: what is done about the others, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, InfraError
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Answers, Request
from infra.launch.images.presence import bring_images
from infra.launch.staging.checkpoints import deep_check, end_stagings, stage
from infra.launch.staging.order import Staging
from infra.launch.staging.plan import Checkpoint, wanted_checkpoints
from infra.remote.failures import Unreachable
from infra.tasks import stage_weights
from infra.tasks.verify import deep_rows, way_out
from tests.launch.scripted_fleet import FakeClock, make_deployment

STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")


class Shelves:
    """Hosts that hold every checkpoint whole, but for those that do not answer."""

    def __init__(self, *away: str, empty: str = "") -> None:
        self.away, self.empty = away, empty
        self.asked: list[tuple[str, str]] = []

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {}
        for host, request in requests.items():
            self.asked.append((host, str(request.get("action"))))
            answers[host] = (
                Unreachable(host, f"{host} does not answer.", "Look at it.")
                if host in self.away
                else self._report(request, holds=host != self.empty)
            )
        return answers

    def _report(self, request: Request, *, holds: bool) -> Mapping[str, object]:
        if request["operation"] == "state":
            image = {"id": "image:x", "state": "ok", "after": "sha256:1", "why": "there"}
            return {"items": [image]}
        if request["action"] != "look":
            return {"ended": ["job"]}
        checkpoints = request["checkpoints"]
        assert isinstance(checkpoints, list)
        files = [{"name": "a", "size_bytes": 5}]
        status = {"phase": "checked", "num_files": 1, "size_bytes": 5}
        row: dict[str, object] = {
            "state": "complete" if holds else "absent",
            "files": files if holds else None,
            "status": status,
            "is_running": False,
        }
        return {"checkpoints": [dict(row) for _ in checkpoints], "ports_taken": []}


def staging_at(fleet: Shelves) -> Staging:
    pace = Pace(limits=Limits(), clock=FakeClock(), say=lambda _: None)
    return Staging(
        fleet=fleet, addresses={}, secrets={}, pace=pace, operator="me", token="t"
    )  # fmt: skip


def checkpoints(catalog: Catalog, *, is_shared: bool = False) -> tuple[Checkpoint, ...]:
    deployment, _, _ = make_deployment(STACK, catalog)
    return wanted_checkpoints(deployment.states, catalog, None, is_shared=is_shared)


class DyingShelves(Shelves):
    """Hosts of which one is lost as soon as it has been set to work."""

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        answers = super().ask(requests, timeout_s=timeout_s)
        if "start" in {request.get("action") for request in requests.values()}:
            self.away = ("unified-1",)
        return answers


@pytest.mark.parametrize(
    "shelves", [Shelves("unified-1"), DyingShelves()], ids=["before", "meanwhile"]
)
def test_a_host_that_is_lost_is_not_known_and_not_damaged(
    catalog: Catalog, shelves: Shelves
) -> None:
    outcomes = deep_check(staging_at(shelves), checkpoints(catalog))
    assert {(one.host, one.error is None) for one in outcomes} == {
        ("unified-0", True),
        ("unified-1", False),
    }
    rows = {(check.process, check.ok) for check in deep_rows(outcomes)}
    assert rows == {("unified-0", True), ("unified-1", None)}


@pytest.mark.parametrize("work", [stage, deep_check])
def test_it_has_failed_there_and_the_others_are_told(catalog: Catalog, work: object) -> None:
    assert callable(work)
    outcomes = work(staging_at(Shelves("unified-1")), checkpoints(catalog))
    told = {(one.host, one.state, one.ok) for one in outcomes}
    assert told == {("unified-0", "complete", True), ("unified-1", "failed", False)}
    away = next(one for one in outcomes if one.host == "unified-1")
    assert away.why == "cannot be asked: unified-1 does not answer."
    assert isinstance(away.error, InfraError)


@pytest.mark.parametrize("work", [stage, deep_check])
def test_another_host_speaks_for_a_shared_mount(catalog: Catalog, work: object) -> None:
    assert callable(work)
    wanted = checkpoints(catalog, is_shared=True)
    assert {one.hosts for one in wanted} == {("unified-0",)}
    outcomes = work(staging_at(Shelves("unified-0")), wanted)
    assert {(one.host, one.ok) for one in outcomes} == {("unified-1", True)}


@pytest.mark.parametrize("work", [stage, deep_check])
def test_who_does_not_see_what_is_on_a_shared_mount_is_told(catalog: Catalog, work: object) -> None:
    assert callable(work)
    outcomes = work(staging_at(Shelves(empty="unified-1")), checkpoints(catalog, is_shared=True))
    assert {(one.host, one.state) for one in outcomes} == {
        ("unified-0", "complete"), ("unified-1", "missing"),
    }  # fmt: skip
    why = next(one.why for one in outcomes if one.host == "unified-1")
    assert why.startswith("unified-0 has it, and unified-1 does not see it: `ssh unified-1 findmnt")


@pytest.mark.parametrize("work", [stage, deep_check])
def test_a_dead_reader_of_a_shared_mount_is_met_once(catalog: Catalog, work: object) -> None:
    assert callable(work)
    shelves, wanted = Shelves("unified-1"), checkpoints(catalog, is_shared=True)
    assert len(wanted) > 1
    work(staging_at(shelves), wanted)
    assert [host for host, _ in shelves.asked].count("unified-1") == 1


def test_what_is_not_seen_is_mounted_and_not_staged(catalog: Catalog) -> None:
    shelves = Shelves(empty="unified-1")
    outcomes = deep_check(staging_at(shelves), checkpoints(catalog, is_shared=True))
    wrong = [check for check in deep_rows(outcomes) if check.is_wrong]
    mounts, again = "mount the weights on unified-1 as on the others", "--stack s"
    assert way_out(wrong, again) == f"{mounts}, then fab verify --stack s --deep"
    # the quick look at that host says of the same weights that they are not there
    lack = replace(wrong[0], mend="stage")
    assert way_out([lack, *wrong], again) == f"{mounts}, then fab verify --stack s --deep"
    elsewhere = replace(lack, process="unified-0")
    both = f"{mounts}, then fab stage-weights --stack s"
    assert way_out([elsewhere, *wrong], again) == both
    assert stage_weights.way_out([one for one in outcomes if not one.ok], again) == both


def test_where_nobody_answers_nothing_is_begun(catalog: Catalog) -> None:
    fleet = Shelves(*HOSTS)
    with pytest.raises(HostsFailed, match="2 of 2 hosts failed"):
        stage(staging_at(fleet), checkpoints(catalog))
    assert {action for _, action in fleet.asked} == {"look"}


def test_a_source_that_is_away_is_the_failure(catalog: Catalog) -> None:
    wanted = [
        replace(one, source=replace(one.source, host="store")) for one in checkpoints(catalog)
    ]
    with pytest.raises(HostsFailed, match="store does not answer"):
        stage(staging_at(Shelves("store")), wanted)


def test_the_others_are_stopped(catalog: Catalog) -> None:
    ended, away = end_stagings(staging_at(Shelves("unified-0")), checkpoints(catalog))
    assert (list(ended), [failure.host for failure in away]) == (["unified-1"], ["unified-0"])


def test_images_of_a_host_that_is_away_have_failed_and_of_others_are_told(
    catalog: Catalog,
) -> None:
    deployment, _, _ = make_deployment(STACK, catalog)
    pace = staging_at(Shelves()).pace
    images = bring_images(Shelves("unified-0"), deployment.states, "check", pace)
    assert {(one.host, one.state) for one in images} == {
        ("unified-0", "failed"), ("unified-1", "ok"),
    }  # fmt: skip
