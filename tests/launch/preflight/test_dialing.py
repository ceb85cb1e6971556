"""Who dials whom, read from a plan; what the dials' results say of hosts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.fleet import rows_of
from infra.launch.preflight.mutual_dials import REACH_S, reach_requests
from infra.launch.preflight.reach_report import read_reached
from infra.plan.compile import compile_file
from infra.plan.ports import EPHEMERAL_FIRST, EPHEMERAL_LAST
from infra.render.dialing import PlannedDial, planned_dials, sample_ports
from tests.launch.preflight.scenes import change, healthy, only, troubles

# 128 prefill hosts of one rank each, and four decode hosts
MANY = (
    "defaults.tensor_parallel=4",
    "roles.prefill.data_parallel=1",
    "roles.prefill.replicas=128",
    "roles.decode.data_parallel=4",
)


def dials(stack: str, catalog: Catalog) -> tuple[PlannedDial, ...]:
    return planned_dials(compile_file(stack, catalog=catalog).plan)


def test_the_router_the_decode_hosts_and_the_followers_dial(catalog: Catalog) -> None:
    found = dials("gb200-2p1d", catalog)
    pairs = {(dial.caller, dial.host, dial.name) for dial in found}
    assert ("prefill-0", "decode-3", "http") in pairs
    assert {(f"decode-{i}", "prefill-1", "side_channel") for i in range(4)} <= pairs
    assert ("decode-2", "decode-0", "dp_rpc") in pairs
    assert ("decode-3", "decode-0", "watch") in pairs
    assert not [d for d in found if d.name == "side_channel" and not d.caller.startswith("decode")]


def test_every_kv_port_of_every_prefill_process_is_dialled(catalog: Catalog) -> None:
    plan = compile_file("a3-2p1d", catalog=catalog).plan
    wanted = {
        (process.host, port)
        for process in plan.processes
        if process.role == "prefill"
        for bind in process.binds
        if bind.name == "kv"
        for port in range(bind.port, bind.port + bind.count)
    }
    found = {(dial.host, dial.port) for dial in planned_dials(plan) if dial.name == "kv"}
    assert found == wanted
    assert any(dial.name == "mooncake-rpc" for dial in planned_dials(plan))


@pytest.mark.parametrize("stack", ["gb200-2p1d", "a3-2p1d", "a2-2n-dp4tp4", "sglang-pd-nixl"])
def test_no_host_dials_itself_and_no_dial_stands_twice(stack: str, catalog: Catalog) -> None:
    found = dials(stack, catalog)
    assert found
    assert all(dial.caller != dial.host for dial in found)
    assert len({(d.caller, d.host, d.port) for d in found}) == len(found)


def test_one_host_dials_nobody(catalog: Catalog) -> None:
    assert dials("h200-tp8", catalog) == ()


def test_samples_lie_in_their_range_clear_of_planned_ports() -> None:
    span = (EPHEMERAL_FIRST, EPHEMERAL_LAST)
    first = sample_ports("unified-1", span, set())
    assert all(span[0] <= port <= span[1] for port in first)
    assert len(set(first)) == 2
    again = sample_ports("unified-1", span, set(first))
    assert not set(again) & set(first)


def test_a_port_that_is_taken_is_dialled_without_a_word_and_not_listened_on(
    catalog: Catalog,
) -> None:
    scene = healthy("a2-2n-dp4tp4", catalog)
    found = planned_dials(scene.plan)
    port = next(dial.port for dial in found if dial.name == "dp_rpc")
    scene = change(scene, "unified-0", listening=({"port": port, "pid": 1, "command": "vllm"},))
    requests = reach_requests(scene, found, "token")
    listened = requests["unified-0"]["listen"]
    assert isinstance(listened, list)
    assert port not in [one["port"] for one in listened]
    asked = requests["unified-1"]["dial"]
    assert isinstance(asked, list)
    quiet = next(one for one in asked if one["port"] == port)
    assert (quiet["speaks"], quiet["loads"]) == (False, False)
    assert [one["loads"] for one in asked if one["speaks"]].count(True) == 1


@pytest.mark.parametrize("stack", ["gb200-2p1d", "a3-2p1d", "a2-2n-dp4tp4"])
def test_full_sized_packets_go_to_every_peer_of_a_group_and_back(
    stack: str, catalog: Catalog
) -> None:
    scene = healthy(stack, catalog)
    requests = reach_requests(scene, planned_dials(scene.plan), "token")
    loaded = [
        (host, str(one["to"]))
        for host, request in requests.items()
        for one in rows_of(request, "dial")
        if one["loads"]
    ]
    assert len(loaded) == len(set(loaded))
    for hosts in scene.groups().values():
        assert {*itertools.permutations(hosts, 2)} <= set(loaded)


def test_many_hosts_have_longer_to_reach_each_other(catalog: Catalog) -> None:
    few, many = (
        reach_requests(scene, planned_dials(scene.plan), "token")
        for scene in (healthy("gb200-2p1d", catalog), healthy("gb200-2p1d", catalog, MANY))
    )
    assert {request["limit_s"] for request in few.values()} == {REACH_S}
    assert len(many) == 132
    assert {request["limit_s"] for request in many.values()} == {REACH_S + 5.0}


def test_what_cannot_be_reached_is_named_with_who_dials_it(catalog: Catalog) -> None:
    scene = healthy("a2-2n-dp4tp4", catalog)
    planned = planned_dials(scene.plan)
    rows = [
        {"to": d.host, "port": d.port, "ok": d.name != "dp_rpc", "error": "timed out"}
        for d in planned
    ]
    reports = {host: {"dials": rows, "listen": []} for host in scene.hosts}
    found = only(replace(scene, reached=read_reached(planned, reports)))
    assert (found.severity, found.host, found.check) == ("block", "unified-0", "peer-ports")
    assert (
        "12321 (unified-0/0's dp_rpc) cannot be reached from unified-1: timed out" in found.observed
    )


def test_a_dial_without_an_answer_has_failed(catalog: Catalog) -> None:
    scene = healthy("a2-2n-dp4tp4", catalog)
    planned = planned_dials(scene.plan)
    lost = replace(scene, reached=read_reached(planned, {}))
    assert {check for _, _, check in troubles(lost)} == {"peer-ports"}


def test_a_sample_that_could_not_be_listened_on_says_nothing(catalog: Catalog) -> None:
    scene = healthy("a2-2n-dp4tp4", catalog)
    planned = planned_dials(scene.plan)
    sampled = [dial for dial in planned if dial.purpose == "sampled"]
    reports = {
        host: {
            "dials": [
                {"to": d.host, "port": d.port, "ok": d.purpose == "planned", "error": "refused"}
                for d in planned
            ],
            "listen": [{"port": d.port, "error": "in use"} for d in sampled if d.host == host],
        }
        for host in scene.hosts
    }
    assert troubles(replace(scene, reached=read_reached(planned, reports))) == []


def test_small_packets_another_host_and_clocks_are_seen_by_the_dials(catalog: Catalog) -> None:
    scene = healthy("a2-2n-dp4tp4", catalog)
    planned = planned_dials(scene.plan)

    def seen(**changes: object) -> list[tuple[str, str, str]]:
        reports = {
            "unified-1": {
                "dials": [
                    {
                        "to": d.host,
                        "port": d.port,
                        "ok": True,
                        "error": None,
                        "name": d.host,
                        **changes,
                    }
                    for d in planned
                    if d.caller == "unified-1"
                ]
            }
        }
        own = [dial for dial in planned if dial.caller == "unified-1"]
        return troubles(replace(scene, reached=read_reached(own, reports)))

    assert seen() == []
    assert ("block", "unified-1", "path-mtu") in seen(whole=False)
    assert ("block", "unified-1", "peer-identity") in seen(name="stranger")
    assert ("warn", "unified-1", "clock-spread") in seen(ahead_s=-0.15, error_s=0.001)
