"""Replicas on hosts: names, devices, ranks."""

from __future__ import annotations

from infra.plan.compile import resolve_topology
from infra.plan.topology import Topology
from tests.plan.generated import CATALOG, loaded

BASE: dict[str, object] = {
    "checkpoint": "kimi-k2.5-int4",
    "accelerator": "h200",
    "engine": {"name": "vllm", "version": "0.22.1"},
    "platform": "existing-hosts",
    "router": {"name": "vllm-router"},
}


def topology(**fields: object) -> Topology:
    return resolve_topology(loaded({**BASE, **fields}), CATALOG)[1]


def unified(**fields: object) -> dict[str, object]:
    return {"unified": fields}


def hosts(found: Topology) -> list[str]:
    return [host.name for host in found.hosts]


def seats(found: Topology) -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    return [
        (group.name, seat.host, seat.devices, seat.ranks)
        for group in found.groups
        for seat in group.seats
    ]


def test_dedicated_replicas_have_hosts_of_their_own() -> None:
    found = topology(roles=unified(replicas=2, tensor_parallel=4, devices_idle=4))
    assert hosts(found) == ["unified-0", "unified-1"]
    assert [devices for _, _, devices, _ in seats(found)] == [(0, 1, 2, 3)] * 2


def test_shared_replicas_are_packed() -> None:
    found = topology(roles=unified(replicas=2, tensor_parallel=4), placement="shared")
    assert seats(found) == [
        ("unified/0", "host-0", (0, 1, 2, 3), (0,)),
        ("unified/1", "host-0", (4, 5, 6, 7), (0,)),
    ]


def test_prefill_and_decode_share_a_host() -> None:
    roles = {
        "prefill": {"tensor_parallel": 4},
        "decode": {"data_parallel": 4, "load_balancing": "external"},
    }
    found = topology(roles=roles, placement="shared", kv_transfer="nixl")
    assert hosts(found) == ["host-0"]
    assert found.hosts[0].roles == ("prefill", "decode")
    assert [devices for _, _, devices, _ in seats(found)] == [(0, 1, 2, 3), (4,), (5,), (6,), (7,)]


def test_a_small_replica_fills_the_gap_that_a_larger_one_left() -> None:
    roles = {
        "prefill": {"tensor_parallel": 4, "replicas": 3},
        "decode": {"tensor_parallel": 2, "replicas": 2},
    }
    found = topology(roles=roles, placement="shared", kv_transfer="nixl")
    assert [(name, host) for name, host, _, _ in seats(found)] == [
        ("prefill/0", "host-0"),
        ("prefill/1", "host-0"),
        ("prefill/2", "host-1"),
        ("decode/0", "host-1"),
        ("decode/1", "host-1"),
    ]


def test_a_replica_over_hosts_takes_fresh_ones() -> None:
    roles = {"prefill": {"tensor_parallel": 4}, "decode": {"tensor_parallel": 16, "replicas": 1}}
    roles["prefill"]["devices_idle"] = 4
    found = topology(roles=roles, placement="shared", kv_transfer="nixl")
    assert hosts(found) == ["host-0", "host-1", "host-2"]
    assert [ranks for _, _, _, ranks in seats(found)] == [(0,), (0,), ()]


def test_ranks_follow_hosts() -> None:
    found = topology(roles=unified(data_parallel=4, tensor_parallel=4, load_balancing="hybrid"))
    assert seats(found) == [
        ("unified/0", "unified-0", tuple(range(8)), (0, 1)),
        ("unified/0", "unified-1", tuple(range(8)), (2, 3)),
    ]
    assert [seat.is_leader for seat in found.groups[0].seats] == [True, False]


def test_the_router_runs_on_the_first_host_of_the_first_role() -> None:
    roles = {"decode": {"tensor_parallel": 8}, "prefill": {"tensor_parallel": 8}}
    assert topology(roles=roles, kv_transfer="nixl").router_host == "prefill-0"
