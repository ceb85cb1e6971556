"""Which host gets what engines compiled from which one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from infra.catalog.load import Catalog
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Answers, Request
from infra.launch.staging.caches import CacheOnHost, stage_caches
from infra.launch.staging.order import Staging
from infra.plan.compile import compile_file
from infra.remote.failures import AgentFailed, Unreachable
from tests.launch.scripted_fleet import FakeClock

STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")


@dataclass
class Shelves:
    """Hosts with an image each and what was compiled for it; what is staged arrives.

    Args:
        images: by host, the id that the reference means there.
        sizes: by host, bytes by image.
        fails: actions that a host refuses.
    """

    images: Mapping[str, str]
    sizes: Mapping[str, Mapping[str, int]]
    fails: Mapping[tuple[str, str], str] = field(default_factory=dict)
    away: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {}
        for host, request in requests.items():
            action = str(request["action"])
            self.asked.append((host, f"{request['operation']} {action}"))
            if host == self.away:
                answers[host] = Unreachable(host, "no answer.", "")
            elif (host, action) in self.fails:
                answers[host] = AgentFailed(host, self.fails[host, action], "")
            elif request["operation"] == "caches":
                answers[host] = self._caches(host)
            else:
                answers[host] = self._staging(request)
        return answers

    def _caches(self, host: str) -> Mapping[str, object]:
        rows = [
            {"accelerator": "ascend-a2", "image": image, "num_bytes": size}
            for image, size in self.sizes.get(host, {}).items()
        ]
        return {"image": self.images[host] or None, "caches": rows}

    def _staging(self, request: Request) -> Mapping[str, object]:
        if request["action"] != "look":
            return {"ended": []}
        row = {"state": "complete", "files": [{"name": "a", "size_bytes": 5}], "is_running": False}
        return {"checkpoints": [{**row, "status": {}, "num_bytes": 5}], "ports_taken": []}


def staged(shelves: Shelves, catalog: Catalog) -> list[CacheOnHost]:
    pace = Pace(limits=Limits(), clock=FakeClock(), say=lambda _: None)
    staging = Staging(
        fleet=shelves,
        addresses=dict.fromkeys(HOSTS, "192.0.2.1"),
        secrets={},
        pace=pace,
        operator="ann",
        token="t",
    )
    return stage_caches(staging, compile_file(STACK, catalog=catalog).plan)


SAME = dict.fromkeys(HOSTS, "aa")


@pytest.mark.parametrize(
    ("shelves", "states"),
    [
        (Shelves(SAME, {"unified-0": {"aa": 9}}), ["held", "staged"]),
        (Shelves(SAME, {"unified-1": {"aa": 9}}), ["staged", "held"]),
        (Shelves(SAME, {host: {"aa": 9} for host in HOSTS}), ["held", "held"]),
        (Shelves(SAME, {}), ["absent", "absent"]),
        # what another image compiled is nothing to hand on, here or there
        (Shelves(SAME, {"unified-0": {"bb": 9}}), ["absent", "absent"]),
        (Shelves({**SAME, "unified-1": "bb"}, {"unified-0": {"aa": 9}}), ["held", "absent"]),
        (Shelves({**SAME, "unified-1": ""}, {"unified-0": {"aa": 9}}), ["held", "absent"]),
        (
            Shelves(SAME, {"unified-0": {"aa": 9}}, {("unified-1", "unpack"): "no room"}),
            ["held", "failed"],
        ),
        (
            Shelves(SAME, {"unified-0": {"aa": 9}}, {("unified-0", "pack"): "it changes"}),
            ["held", "failed"],
        ),
        (Shelves(SAME, {"unified-0": {"aa": 9}}, away="unified-1"), ["held"]),
    ],
)
def test_who_has_it_hands_it_on(shelves: Shelves, states: list[str], catalog: Catalog) -> None:
    rows = staged(shelves, catalog)
    assert [row.state for row in rows] == states
    assert [row.host for row in rows] == list(HOSTS)[: len(rows)]
    actions = [action for _, action in shelves.asked if action.startswith("caches")]
    is_handed_on = {"staged", "failed"} & set(states)
    assert ("caches pack" in actions) is bool(is_handed_on)
    if is_handed_on:  # whatever became of it, no archive is left
        assert actions[-2:] == ["caches drop"] * 2
    for row in rows:
        if row.state == "failed":
            assert {"no room", "it changes"} & {row.why.rpartition(": ")[2]}
