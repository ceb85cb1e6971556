"""After a start that failed: which planned ports peers cannot dial, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.launch.fleet import Answers, Request
from infra.launch.preflight.closed_ports import closed_ports
from infra.remote.failures import Unreachable
from tests.launch.scripted_fleet import make_deployment

STACK, PORT = "a2-2n-dp4tp4", 12321


@dataclass
class Dialling:
    """Hosts that dial each other; one port drops what comes from elsewhere."""

    closed: int | None
    listening: bool
    silent: str = ""
    asked: dict[str, Request] = field(default_factory=dict)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        return {host: self.answer(host, request) for host, request in requests.items()}

    def answer(self, host: str, request: Request) -> dict[str, Any] | InfraError:
        if host == self.silent:
            return Unreachable(host, "no answer.", "Look at it.")
        if request["operation"] == "listening":
            row = {"address": "192.0.2.1", "port": PORT, "pid": 1, "command": "engine"}
            return {"listening": [row] if self.listening and host == "unified-0" else []}
        self.asked[host] = request
        dials: Any = request["dial"]
        return {
            "listen": [],
            "dials": [
                {
                    "to": dial["to"],
                    "port": dial["port"],
                    "ok": dial["port"] != self.closed,
                    "error": "timed out" if dial["port"] == self.closed else None,
                }
                for dial in dials
            ],
        }


def said(catalog: Catalog, fleet: Dialling, stack: str = STACK) -> list[str]:
    deployment, _, _ = make_deployment(stack, catalog)
    return closed_ports(replace(deployment, fleet=fleet), catalog)


@pytest.mark.parametrize("listening", [True, False])
def test_a_port_that_drops_is_named_with_who_dials_it_and_what_opens_it(
    catalog: Catalog, listening: bool
) -> None:
    fleet = Dialling(PORT, listening)
    assert said(catalog, fleet) == [
        (
            "unified-0: port 12321 (unified-0/0's dp_rpc) cannot be reached from unified-1: timed out. "
            "Open it on unified-0, and on what lies between: sudo nft list ruleset; security groups"
        )
    ]
    opened: Any = fleet.asked["unified-0"]["listen"]
    assert (PORT in {one["port"] for one in opened}) is not listening, "an engine keeps its port"


def test_where_all_can_be_dialled_or_somebody_is_silent_nothing_is_said(catalog: Catalog) -> None:
    assert said(catalog, Dialling(None, listening=True)) == []
    assert said(catalog, Dialling(PORT, listening=True, silent="unified-1")) == []


def test_of_one_host_nobody_is_asked(catalog: Catalog) -> None:
    fleet = Dialling(PORT, listening=True)
    assert said(catalog, fleet, "mi300x-tp8") == []
    assert fleet.asked == {}
