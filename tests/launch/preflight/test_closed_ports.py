"""After a start that failed: which planned ports peers cannot dial; engines that go on starting keep theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.launch.deployment import Deployment
from infra.launch.fleet import Answers, Request
from infra.launch.preflight.closed_ports import closed_ports
from infra.remote.failures import Unreachable
from infra.render.dialing import planned_dials
from tests.launch.scripted_fleet import make_deployment

STACK, HOST, PORT, ADDRESS = "a2-2n-dp4tp4", "unified-0", 12321, "192.0.2.1"
CLOSED = (
    f"{HOST}: port {PORT} ({HOST}/0's dp_rpc) cannot be reached from unified-1: {{}}. "
    f"Open it on {HOST}, and on what lies between: sudo nft list ruleset; security groups"
)
REFUSED = "Connection refused"
# Who listens where: address and inode of one socket each, by host and port.
Sockets = Mapping[tuple[str, int], tuple[str, str]]
LISTENS: Sockets = {(HOST, PORT): (ADDRESS, "7001")}


@dataclass
class Dialling:
    """Hosts that dial each other, where one port cannot be reached.

    Args:
        error: how a dial to the port ends, None where it connects.
        looks: who listens at each look, the last one at all that follow.
        silent: the host that does not answer.
        asked: the last dialling that each host was asked for.
        looked: the ports that were looked at, by host.
        late: hosts that were given less time to answer than they were given to dial.
    """

    error: str | None
    looks: tuple[Sockets, ...] = (LISTENS,)
    silent: str = ""
    asked: dict[str, Request] = field(default_factory=dict)
    looked: dict[str, set[int]] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    num_looks: int = 0

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        at = self.looks[min(self.num_looks, len(self.looks) - 1)]
        self.num_looks += any(one["operation"] == "listening" for one in requests.values())
        self.late += [
            host
            for host, request in requests.items()
            if float(str(request.get("limit_s", 0.0))) >= timeout_s
        ]
        return {host: self.answer(host, request, at) for host, request in requests.items()}

    def answer(self, host: str, request: Request, at: Sockets) -> dict[str, Any] | InfraError:
        if host == self.silent:
            return Unreachable(host, "no answer.", "Look at it.")
        if request["operation"] == "read":
            return {"files": {}}
        if request["operation"] == "listening":
            ports: Any = request["ports"]
            self.looked.setdefault(host, set()).update(ports)
            rows = [(port, *at[host, port]) for port in ports if (host, port) in at]
            return {"listening": [{"port": p, "address": a, "inode": i} for p, a, i in rows]}
        self.asked[host] = request
        dials: Any = request["dial"]
        return {"listen": [], "dials": [self.dialled(dial) for dial in dials]}

    def dialled(self, dial: Mapping[str, Any]) -> dict[str, Any]:
        error = self.error if dial["port"] == PORT else None
        return {"to": dial["to"], "port": dial["port"], "ok": error is None, "error": error}


def said(catalog: Catalog, fleet: Dialling, stack: str = STACK) -> list[str]:
    deployment, _, _ = make_deployment(stack, catalog)
    return closed_ports(replace(deployment, fleet=fleet), catalog)


def everywhere(deployment: Deployment) -> Sockets:
    """Somebody listens wherever anybody may dial, samples of ranges included."""
    address = {host.name: host.address for host in deployment.plan.hosts}
    dials = planned_dials(deployment.plan)
    return {(one.host, one.port): (address[one.host], str(one.port)) for one in dials}


@pytest.mark.parametrize("error", ["timed out", "No route to host", "Network is unreachable"])
def test_a_port_that_is_closed_is_named_with_who_dials_it_and_what_opens_it(
    catalog: Catalog, error: str
) -> None:
    assert said(catalog, Dialling(error)) == [CLOSED.format(error)]


def test_a_port_that_an_engine_may_still_bind_is_neither_taken_nor_dialled(
    catalog: Catalog,
) -> None:
    fleet = Dialling("timed out", looks=({},))
    assert said(catalog, fleet) == []
    assert fleet.asked == {}
    assert PORT in fleet.looked[HOST]
    fleet = Dialling("timed out")
    assert said(catalog, fleet) != []
    dialled = [one for request in fleet.asked.values() for one in _rows(request, "dial")]
    assert [one["port"] for one in dialled] == [PORT]


def test_no_port_is_listened_on_and_nothing_is_said_to_a_listener(catalog: Catalog) -> None:
    deployment, _, _ = make_deployment("a3-2p1d", catalog)
    late = {(one.host, one.port) for one in planned_dials(deployment.plan) if one.name == "kv"}
    listens = {at: one for at, one in everywhere(deployment).items() if at not in late}
    assert late
    fleet = Dialling("timed out", looks=(listens,))
    assert closed_ports(replace(deployment, fleet=fleet), catalog) != []
    assert [one for request in fleet.asked.values() for one in _rows(request, "listen")] == []
    dialled = [one for request in fleet.asked.values() for one in _rows(request, "dial")]
    assert dialled
    assert [one for one in dialled if one["speaks"] or one["loads"]] == []


def test_ports_that_engines_choose_at_start_are_not_looked_at(catalog: Catalog) -> None:
    deployment, _, _ = make_deployment("a3-2p1d", catalog)
    dials = planned_dials(deployment.plan)
    assert {one.purpose for one in dials} == {"planned", "sampled"}
    fleet = Dialling(None, looks=(everywhere(deployment),))
    closed_ports(replace(deployment, fleet=fleet), catalog)
    looked = {(host, port) for host, ports in fleet.looked.items() for port in ports}
    assert looked == {(one.host, one.port) for one in dials if one.purpose == "planned"}
    dialled = [one for request in fleet.asked.values() for one in _rows(request, "dial")]
    assert {(one["to"], one["port"]) for one in dialled} == looked


@pytest.mark.parametrize("address", [ADDRESS, "0.0.0.0"])
def test_a_refusal_at_a_socket_that_listened_all_the_while_is_a_firewalls(
    catalog: Catalog, address: str
) -> None:
    fleet = Dialling(REFUSED, looks=({(HOST, PORT): (address, "7001")},))
    assert said(catalog, fleet) == [CLOSED.format(REFUSED)]
    assert fleet.num_looks == 2


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((LISTENS, {}), id="ended"),
        pytest.param((LISTENS, {(HOST, PORT): (ADDRESS, "7002")}), id="began-anew"),
        pytest.param(({(HOST, PORT): ("127.0.0.1", "7001")},), id="loopback"),
        pytest.param(({(HOST, PORT): ("198.51.100.1", "7001")},), id="another-network"),
        pytest.param(({(HOST, PORT): ("::", "7001")},), id="perhaps-ipv6-alone"),
    ],
)
def test_a_refusal_that_may_be_the_listeners_own_host_is_no_closed_port(
    catalog: Catalog, looks: tuple[Sockets, ...]
) -> None:
    assert said(catalog, Dialling(REFUSED, looks)) == []


@pytest.mark.parametrize("error", ["connected, but timed out", "no time left", "no answer came"])
def test_what_no_firewall_does_is_no_closed_port(catalog: Catalog, error: str) -> None:
    assert said(catalog, Dialling(error)) == []


def test_many_hosts_are_awaited_for_longer_than_they_dial(catalog: Catalog) -> None:
    one_rank_a_host = ("defaults.tensor_parallel=4", "roles.prefill.data_parallel=1")
    many = (*one_rank_a_host, "roles.decode.data_parallel=132")
    deployment, _, _ = make_deployment("gb200-2p1d", catalog, sets=many)
    fleet = Dialling(None, looks=(everywhere(deployment),))
    limits = replace(deployment.limits, ask_s=1.0)
    assert closed_ports(replace(deployment, fleet=fleet, limits=limits), catalog) == []
    assert len(fleet.asked) > 131
    assert fleet.late == []


def test_where_all_can_be_dialled_or_somebody_is_silent_nothing_is_said(catalog: Catalog) -> None:
    assert said(catalog, Dialling(None)) == []
    assert said(catalog, Dialling("timed out", silent="unified-1")) == []


def test_of_one_host_nobody_is_asked(catalog: Catalog) -> None:
    fleet = Dialling("timed out")
    assert said(catalog, fleet, "mi300x-tp8") == []
    assert (fleet.asked, fleet.looked) == ({}, {})


def _rows(request: Request, key: str) -> list[Any]:
    rows: Any = request[key]
    return list(rows)
