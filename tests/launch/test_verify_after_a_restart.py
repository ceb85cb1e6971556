"""A group has just come up again: the router looks once a second, and `verify` gives it that time, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from infra.launch.fleet import Answers, Request
from infra.launch.proof.host_drift import Check
from infra.launch.proof.serving import SEES_AGAIN_S
from infra.launch.proof.verification import verify
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

ROUTER = "router/0"


class LateRouter:
    """A fleet whose router answers 503 to its first questions, as one does that has not looked yet."""

    def __init__(self, fleet: ScriptedFleet, num: int) -> None:
        self._fleet, self._left = fleet, num
        self.num_asked = 0

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        answers = self._fleet.ask(requests, timeout_s=timeout_s)
        for report in answers.values():
            rows = report.get("probes") if isinstance(report, dict) else None
            for row in rows if isinstance(rows, list) else ():
                if str(row["id"]).startswith(ROUTER):
                    self.num_asked += 1
                    if self.num_asked <= self._left:
                        row["steps"] = [{"status": 503, "body": {"error": "no healthy worker"}}]
        return answers


def of_router(catalog: Catalog, num: int) -> tuple[list[Check], LateRouter, float]:
    """The checks of the router, whom they asked, and how long they waited."""
    deployment, fleet, _ = make_deployment("gb200-2p1d", catalog, sets=("platform=existing-hosts",))
    bring_up(deployment, {}, tunes=False)
    clock = deployment.clock
    late, before = LateRouter(fleet, num), clock.now()
    found = verify(replace(deployment, fleet=late), {}, 5.0, catalog)
    return [each for each in found if each.process == ROUTER], late, clock.now() - before


@pytest.mark.parametrize("num", [0, 1, 3])
def test_a_router_that_has_not_looked_yet_is_asked_again(catalog: Catalog, num: int) -> None:
    checks, late, _ = of_router(catalog, num)
    assert checks[
        0
    ].ok  # the scripted router shows no stream and no tool call: what it lacks is told as such
    assert not [each for each in checks if "503" in each.detail]
    assert late.num_asked == len(checks) + num


def test_a_router_that_never_sees_an_endpoint_is_wrong_and_awaited_once(catalog: Catalog) -> None:
    checks, _, waited_s = of_router(catalog, 1000)
    assert all(each.is_wrong for each in checks)
    assert "HTTP 503" in checks[0].detail
    assert SEES_AGAIN_S <= waited_s < 2 * SEES_AGAIN_S
