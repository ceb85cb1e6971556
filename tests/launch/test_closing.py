"""Hosts load their tables for a trial, are reached anew, dial each other, and keep them; or nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from infra.agent.kinds.firewall import TRIAL_S
from infra.catalog.load import Catalog
from infra.errors import HostsFailed, InfraError
from infra.launch.closing import close_hosts, waiting_hosts
from infra.launch.deployment import Deployment
from infra.launch.fleet import Answers, Report, Request
from infra.launch.refusals import find_unclosable
from infra.launch.sharing import find_unlike
from infra.plan.process import Firewall
from infra.remote.failures import Unreachable
from infra.render.release_record import Release
from tests.launch.scripted_fleet import make_deployment

STACK = "gb200-2p1d"
CLOSES = ("firewall=plan", "clients=[203.0.113.0/24]")
HOSTS = ["prefill-0", "prefill-1", *(f"decode-{i}" for i in range(4))]


@dataclass(slots=True)
class ClosingFleet:
    """Hosts that load tables and dial each other.

    Args:
        state: how a host's table ends, where that is not `changed`.
        locked_out: hosts that are not reached on a new connection.
        dropped: dials that nothing comes of, by caller and host.
    """

    state: dict[str, tuple[str, str]] = field(default_factory=dict)
    locked_out: set[str] = field(default_factory=set)
    dropped: set[tuple[str, str]] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    has_hung_up: bool = False

    def hang_up(self) -> None:
        self.has_hung_up = True

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        return {host: self._answer(host, request) for host, request in requests.items()}

    def _answer(self, host: str, request: Request) -> Report | InfraError:
        operation = str(request["operation"])
        self.asked.append((operation, host))
        self.requests.append(request)
        if self.has_hung_up and host in self.locked_out:
            return Unreachable(host, "no answer on port 22.", "Look at it.")
        if operation == "state":
            state, why = self.state.get(host, ("changed", "closed"))
            return {
                "items": [{"id": "firewall:x", "group": "firewall", "state": state, "why": why}]
            }
        if operation == "reach":
            return {"listen": [], "dials": [self._dialled(host, one) for one in rows(request)]}
        return {"listening": []}

    def _dialled(self, host: str, one: Mapping[str, object]) -> dict[str, object]:
        ok = (host, one["to"]) not in self.dropped
        return {
            **one,
            "ok": ok,
            "error": None if ok else "timed out",
            "whole": True,
            "name": one["to"],
        }


def rows(request: Request) -> list[Mapping[str, object]]:
    listed = request["dial"]
    assert isinstance(listed, list)
    return listed


def closing(catalog: Catalog, fleet: ClosingFleet) -> tuple[Deployment, list[str]]:
    deployment, _, said = make_deployment(STACK, catalog, sets=CLOSES)
    return replace(deployment, fleet=fleet, hang_up=fleet.hang_up), said


def operations(fleet: ClosingFleet) -> list[str]:
    return list(dict.fromkeys(operation for operation, _ in fleet.asked))


def test_tables_are_kept_by_new_connections_when_everybody_got_through(catalog: Catalog) -> None:
    fleet = ClosingFleet()
    deployment, said = closing(catalog, fleet)
    close_hosts(deployment, catalog, HOSTS, frozenset())
    assert operations(fleet) == ["state", "read", "listening", "reach", "firewall"]
    assert fleet.has_hung_up
    assert [host for operation, host in fleet.asked if operation == "firewall"] == HOSTS
    items = fleet.requests[0]["items"]
    assert isinstance(items, list)
    assert items[0]["trial_s"] >= TRIAL_S + 6  # hosts dial each other meanwhile
    assert said[-1].endswith("reached through the new tables, which are kept")


def test_nothing_is_asked_where_every_table_is_as_wanted(catalog: Catalog) -> None:
    fleet = ClosingFleet()
    deployment, _ = closing(catalog, fleet)
    ok = {"id": "firewall:x", "group": "firewall", "state": "ok"}
    waits = {**ok, "state": "changed"}
    assert waiting_hosts(deployment, {host: [ok] for host in HOSTS}) == []
    assert waiting_hosts(deployment, {**{host: [ok] for host in HOSTS}, "decode-2": [waits]}) == [
        "decode-2"
    ]
    close_hosts(deployment, catalog, [], frozenset())
    assert fleet.asked == []
    # a table that is taken away is no host's to load
    open_one, _, _ = make_deployment(STACK, catalog)
    assert waiting_hosts(open_one, {host: [waits] for host in HOSTS}) == []


@pytest.mark.parametrize("fault", ["locked out", "dropped", "not loaded"])
def test_nothing_is_kept_when_one_host_is_not_reached(catalog: Catalog, fault: str) -> None:
    fleet = ClosingFleet()
    if fault == "locked out":
        fleet.locked_out.add("decode-3")
    elif fault == "dropped":
        fleet.dropped.add(("prefill-0", "decode-3"))
    else:
        fleet.state["decode-3"] = ("blocked", "systemd-run cannot end a trial of the table")
    deployment, said = closing(catalog, fleet)
    with pytest.raises(HostsFailed) as failed:
        close_hosts(deployment, catalog, HOSTS, frozenset())
    assert failed.value.exit_code == 4
    assert "decode-3" in failed.value.where
    assert "every host takes its own back by itself" in said[-1]
    assert "firewall" not in operations(fleet)


def test_what_keeps_a_host_from_being_closed_is_told_before_anything_changes() -> None:
    row = {"group": "firewall", "state": "blocked", "why": "there is no program nft here"}
    (refused,) = find_unclosable({"a": [row], "b": [row], "c": [{**row, "state": "changed"}]})
    assert (refused.exit_code, refused.where) == (3, "a, b")
    assert refused.what == "there is no program nft here."


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_stack_that_would_be_shut_out_by_another_one_is_refused(
    catalog: Catalog, *, is_closed: bool
) -> None:
    deployment, _, _ = make_deployment(STACK, catalog)
    firewall = Firewall(clients=(), monitors=()) if is_closed else None
    plan = replace(deployment.plan, firewall=firewall)
    records = {
        "decode-1": {
            STACK: release(STACK, is_closed=not is_closed),  # an earlier release of its own
            "other": release("other", is_closed=not is_closed),
            "third": release("third", is_closed=is_closed),
        }
    }
    (refused,) = find_unlike(plan, records)
    closed, left = (STACK, "other") if is_closed else ("other", STACK)
    assert (refused.exit_code, refused.where) == (3, "decode-1")
    assert (
        f"Stack {closed} closes this host, and would shut out the peers of stack {left}"
        in refused.what
    )


def release(stack: str, *, is_closed: bool) -> Release:
    return Release(stack=stack, release="", cleanup=None, processes=(), is_closed=is_closed)
