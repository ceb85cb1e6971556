"""Which hosts' devices ping which others', and what is said of a pair between which packets get lost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.fleet import Report, Request, rows_of
from infra.launch.preflight.ping_peers import ALL_PAIRS, ping_peers
from infra.launch.preflight.table import judge
from infra.launch.preflight.waves import look_further
from tests.launch.hosts_at_hand import fleet_at_hand
from tests.launch.preflight.scenes import healthy, only
from tests.launch.scripted_fleet import make_deployment

FOUR_HOSTS = "a3-2p1d"


def names(count: int) -> list[str]:
    return [f"h{place}" for place in range(count)]


def pairs(found: Mapping[str, Sequence[str]]) -> list[frozenset[str]]:
    return [frozenset((host, peer)) for host, peers in found.items() for peer in peers]


def all_pairs(hosts: Sequence[str]) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in itertools.combinations(hosts, 2)}


@pytest.mark.parametrize("count", range(ALL_PAIRS + 1))
def test_up_to_sixteen_hosts_every_pair_is_pinged_once(count: int) -> None:
    found = pairs(ping_peers(names(count), []))
    assert set(found) == all_pairs(names(count))
    assert len(found) == len(set(found))


def test_so_is_every_pair_of_a_group_within_more_hosts() -> None:
    hosts = names(64)
    groups = [hosts[:16], hosts[16:20], [*hosts[20:23], "a host that is away"], hosts[23:24]]
    found = pairs(ping_peers(hosts, groups))
    assert len(found) == len(set(found))
    for group in (hosts[:16], hosts[16:20], hosts[20:23]):
        assert all_pairs(group) <= set(found)


@pytest.mark.parametrize(("count", "most"), [(17, 4), (64, 6), (256, 8)])
def test_a_host_of_many_pings_no_more_than_one_of_sixteen_and_no_host_is_left_out(
    count: int, most: int
) -> None:
    hosts = names(count)
    found = ping_peers(hosts, [hosts])
    assert max(map(len, found.values())) == most <= ALL_PAIRS // 2
    assert {frozenset(pair) for pair in itertools.pairwise(hosts)} <= set(pairs(found))


def test_packets_that_get_lost_between_any_two_of_four_hosts_are_told(catalog: Catalog) -> None:
    """Also of two that stand across in the circle of hosts."""
    scene = healthy(FOUR_HOSTS, catalog)
    hosts = [host.name for host in scene.plan.hosts]
    assert len(hosts) == 4

    def told_with(lost: frozenset[str]) -> list[tuple[str, str, str]]:
        def answer(host: str, request: Request) -> Report:
            commands = {}
            for row in rows_of(request, "commands"):
                device, peer, _ = str(row["id"]).split()
                percent = 100 if {host, peer} == lost and device in ("3", "5") else 0
                said = f"3 packets transmitted, {percent:.2f}% packet loss\n"
                commands[str(row["id"])] = {"exit_code": 0, "stdout": said, "stderr": ""}
            return {"commands": commands}

        deployment = replace(
            make_deployment(FOUR_HOSTS, catalog)[0], fleet=fleet_at_hand(hosts, answer)
        )
        looked = look_further(deployment, scene, 0.0, 1.0)
        return [
            (finding.severity, finding.host, finding.observed)
            for finding in judge(replace(scene, pings=looked.pings))
            if finding.check == "device-ping" and finding.severity != "pass"
        ]

    assert told_with(frozenset()) == []
    for pair in itertools.combinations(hosts, 2):
        ((severity, host, said),) = told_with(frozenset(pair))
        (other,) = set(pair) - {host}
        assert (severity, said) == (
            "block",
            f"device 3, 5: no answer from the same device of {other}",
        )


def test_peers_of_which_the_same_devices_do_not_answer_share_a_row(catalog: Catalog) -> None:
    scene = healthy(FOUR_HOSTS, catalog)
    first, *others = (host.name for host in scene.plan.hosts)
    lost = {(first, 3, f"{peer} 192.0.2.4"): 100.0 for peer in others}
    told = only(replace(scene, pings={**lost, (first, 4, f"{others[0]} 192.0.2.5"): 0.0}))
    assert told.host == first
    assert told.observed == f"device 3: no answer from the same device of {', '.join(others)}"
