"""A source without checksums: one host brings everything and hashes it, and the others get its sums from this side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Answers, Request
from infra.launch.staging.checkpoints import stage
from infra.launch.staging.order import Outcome, Staging
from infra.launch.staging.plan import Checkpoint, wanted_checkpoints
from tests.launch.scripted_fleet import FakeClock, make_deployment

FIRST, SECOND = HOSTS = ("unified-0", "unified-1")
LISTED: list[dict[str, object]] = [{"name": "a", "size_bytes": 5}, {"name": "b", "size_bytes": 6}]
HASHED = [{**row, "sha256": "0" * 64} for row in LISTED]


class Bucket:
    """Hosts that see a bucket whose listing has sizes alone.

    Args:
        fails: the host that cannot fetch anything.
        listed: what the source lists.
    """

    def __init__(self, fails: str = "", listed: Sequence[Mapping[str, object]] = LISTED) -> None:
        self.fails, self.listed = fails, list(listed)
        self.starts: list[tuple[str, Request]] = []
        self.holds: dict[str, bool] = {}
        self.said: list[str] = []
        self.found: dict[str, str] = {}

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        return {host: self._report(host, request) for host, request in requests.items()}

    def _report(self, host: str, request: Request) -> Mapping[str, object]:
        action = request["action"]
        if action == "list":
            return {"files": self.listed, "commit": None}
        if action == "start":
            self.starts.append((host, request))
            self.holds[host] = host != self.fails
            return {"started": True, "status": {}}
        if action == "end":
            return {"ended": []}
        phase = {True: "complete", False: "failed", None: None}[self.holds.get(host)]
        status = {"phase": phase, "problem": "no room", "num_files": 2} if phase else {}
        holds = phase == "complete"
        state = "complete" if holds else self.found.get(host, "absent")
        row = {"state": state, "files": HASHED if state != "absent" else []}
        told = {**row, "status": status, "is_running": False, "free_bytes": 1 << 40}
        wanted = request["checkpoints"]
        assert isinstance(wanted, list)
        return {"checkpoints": [told for _ in wanted], "ports_taken": []}


@pytest.fixture
def wanted(catalog: Catalog) -> tuple[Checkpoint, ...]:
    deployment, _, _ = make_deployment("a2-2n-dp4tp4", catalog)
    found = wanted_checkpoints(deployment.states, catalog, "s3://weights", is_shared=False)
    return (replace(found[0], hosts=HOSTS),)


def staged(fleet: Bucket, wanted: tuple[Checkpoint, ...]) -> list[Outcome]:
    pace = Pace(limits=Limits(), clock=FakeClock(), say=fleet.said.append)
    addresses = {FIRST: "192.0.2.1", SECOND: "192.0.2.2"}
    made = Staging(
        fleet=fleet, addresses=addresses, secrets={}, pace=pace, operator="me", token="t"
    )
    return stage(made, wanted)


def test_one_host_hashes_what_the_source_does_not_and_its_sums_travel_in_the_request(
    wanted: tuple[Checkpoint, ...],
) -> None:
    fleet = Bucket()
    outcomes = staged(fleet, wanted)
    assert {(one.host, one.state) for one in outcomes} == {(FIRST, "staged"), (SECOND, "staged")}
    (_, alone), *later = fleet.starts
    assert (alone["files"], alone["peers"], alone["listen"]) == (LISTED, [], None)
    assert [host for host, _ in fleet.starts] == [FIRST, FIRST, SECOND]
    assert all(request["files"] == HASHED for _, request in later)
    assert later[-1][1]["peers"] == [{"name": FIRST, "address": "192.0.2.1:17100"}]
    assert any("tells no checksums" in line and "twice as long" in line for line in fleet.said)


def test_where_the_first_host_fails_the_others_are_not_begun_and_say_why(
    wanted: tuple[Checkpoint, ...],
) -> None:
    fleet = Bucket(fails=FIRST)
    outcomes = {one.host: one for one in staged(fleet, wanted)}
    assert [host for host, _ in fleet.starts] == [FIRST]
    assert (outcomes[FIRST].state, outcomes[FIRST].why) == ("failed", "no room")
    assert outcomes[SECOND].state == "failed"
    assert f"{FIRST} was to bring it first" in outcomes[SECOND].why


@pytest.mark.parametrize("key", ["sha256", "git_sha1"])
def test_with_checksums_all_begin_at_once_and_only_hosts_of_the_site_may_dial(
    wanted: tuple[Checkpoint, ...], key: str
) -> None:
    fleet = Bucket(listed=[{**row, key: "0" * 40} for row in LISTED])
    staged(fleet, wanted)
    assert [host for host, _ in fleet.starts] == [FIRST, SECOND]
    listen = fleet.starts[0][1]["listen"]
    assert isinstance(listen, dict)
    assert listen["members"] == {FIRST: "192.0.2.1", SECOND: "192.0.2.2"}


def test_one_host_alone_needs_no_sums_of_anybody(wanted: tuple[Checkpoint, ...]) -> None:
    fleet = Bucket()
    (outcome,) = staged(fleet, (replace(wanted[0], hosts=(FIRST,), readers=(FIRST,)),))
    assert (outcome.state, len(fleet.starts)) == ("staged", 1)
    assert not any("no checksums" in line for line in fleet.said)


def test_what_others_than_root_could_have_written_is_read_again(
    wanted: tuple[Checkpoint, ...],
) -> None:
    fleet = Bucket(listed=HASHED)
    fleet.found = {FIRST: "unverified", SECOND: "complete"}
    outcomes = {one.host: one for one in staged(fleet, wanted)}
    assert (outcomes[FIRST].state, outcomes[SECOND].state) == ("staged", "complete")
    assert FIRST in [host for host, _ in fleet.starts]


def test_a_source_host_that_others_may_write_to_is_read_before_it_serves(
    wanted: tuple[Checkpoint, ...],
) -> None:
    fleet = Bucket()
    fleet.found = {FIRST: "unverified"}
    source = replace(wanted[0].source, document={}, host=FIRST)
    outcomes = {one.host: one for one in staged(fleet, (replace(wanted[0], source=source),))}
    assert [host for host, _ in fleet.starts] == [FIRST, SECOND]
    assert outcomes[SECOND].ok
