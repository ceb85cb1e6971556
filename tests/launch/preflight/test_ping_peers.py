"""Which hosts' devices ping which others', and what is said of a pair between which packets get lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.fleet import Report, Request, rows_of
from infra.launch.preflight.ascend import HCCN_TOOL
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.observed import Told
from infra.launch.preflight.ping_peers import ALL_PAIRS, ping_peers
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.launch.preflight.waves import look_further
from tests.launch.hosts_at_hand import fleet_at_hand
from tests.launch.preflight.scenes import healthy, only, tell
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


def ping_told(stdout: str, exit_code: int | None = 0, stderr: str = "") -> dict[str, object]:
    return {"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "seconds": 30.0}


def judged(
    catalog: Catalog,
    ping: Callable[[str, str, str], Mapping[str, object]],
    scene: Scene | None = None,
) -> list[Finding]:
    """What `device-ping` has against hosts whose pings end so, by (host, device, peer)."""
    scene = healthy(FOUR_HOSTS, catalog) if scene is None else scene

    def answer(host: str, request: Request) -> Report:
        asked = (str(row["id"]) for row in rows_of(request, "commands"))
        return {"commands": {one: ping(host, *one.split()[:2]) for one in asked}}

    hosts = [host.name for host in scene.plan.hosts]
    fleet = fleet_at_hand(hosts, answer)
    deployment = replace(make_deployment(FOUR_HOSTS, catalog)[0], fleet=fleet)
    looked = look_further(deployment, scene, 0.0, 1.0)
    return [
        finding
        for finding in judge(replace(scene, pings=looked.pings))
        if finding.check == "device-ping" and finding.severity != "pass"
    ]


def test_packets_that_get_lost_between_any_two_of_four_hosts_are_told(catalog: Catalog) -> None:
    """Also of two that stand across in the circle of hosts."""
    hosts = [host.name for host in healthy(FOUR_HOSTS, catalog).plan.hosts]
    assert len(hosts) == 4

    def told_with(lost: frozenset[str]) -> list[Finding]:
        def ping(host: str, device: str, peer: str) -> Mapping[str, object]:
            percent = 100 if {host, peer} == lost and device in ("3", "5") else 0
            return ping_told(f"3 packets transmitted, {percent:.2f}% packets loss\n")

        return judged(catalog, ping)

    assert told_with(frozenset()) == []
    for pair in itertools.combinations(hosts, 2):
        (found,) = told_with(frozenset(pair))
        (other,) = set(pair) - {found.host}
        assert (found.severity, found.observed) == (
            "block",
            f"device 3, 5: no answer from the same device of {other}",
        )


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (ping_told("?=7: <html>\n"), "hccn_tool prints what cannot be read: ?=7: <html>"),
        (ping_told(""), "hccn_tool prints nothing"),
        (
            ping_told("", None, "hccn_tool did not answer within 30 s and was killed"),
            "hccn_tool did not answer within 30 s",
        ),
        (ping_told("", None, "hccn_tool: No such file or directory"), "there is no hccn_tool"),
        (
            ping_told("The device is occupied. Please try again later.\n", 33),
            "hccn_tool failed with exit code 33: The device is occupied. Please try again later.",
        ),
    ],
    ids=["garbage", "silent", "hung", "missing", "occupied"],
)
def test_a_ping_that_says_nothing_of_lost_packets_is_no_lost_one(
    told: dict[str, object], why: str, catalog: Catalog
) -> None:
    whole = ping_told("3 packets transmitted, 3 received, 0.00% packets loss\n")
    first, *others = (host.name for host in healthy(FOUR_HOSTS, catalog).plan.hosts)

    def ping(host: str, device: str, peer: str) -> Mapping[str, object]:
        return told if first in (host, peer) and device in ("3", "5") else whole

    found = judged(catalog, ping)
    assert {one.severity for one in found} == {"warn"}
    told_of = {one.host: one for one in found}
    own = told_of[first]
    assert own.observed.startswith("cannot be told of device 3, 5 to ")
    assert own.observed.endswith(f": {why}")
    assert {name for name in others if name in own.observed} | (told_of.keys() - {first}) == {
        *others
    }
    assert own.fix.startswith(f"ssh {first} sudo {HCCN_TOOL} -i 3 -hccs_ping -g address 29.0.0.3")


def test_a_device_that_knows_no_address_of_its_own_pings_nobody(catalog: Catalog) -> None:
    scene = healthy(FOUR_HOSTS, catalog)
    first = next(iter(scene.hosts))
    asked: set[tuple[str, str]] = set()

    def ping(host: str, device: str, peer: str) -> Mapping[str, object]:
        asked.add((host, device))
        asked.add((peer, device))
        return ping_told("3 packets transmitted, 3 received, 0.00% packets loss\n")

    found = judged(catalog, ping, tell(scene, first, "ascend.address.3", "", None))
    assert (first, "3") not in asked
    assert (first, "4") in asked
    (told,) = found
    assert (told.host, told.severity) == (first, "warn")
    assert told.observed.startswith("cannot be told of device 3: ")


def test_peers_of_which_the_same_devices_do_not_answer_share_a_row(catalog: Catalog) -> None:
    scene = healthy(FOUR_HOSTS, catalog)
    first, *others = (host.name for host in scene.plan.hosts)
    gone, there = (
        Told(exit_code=0, stdout=f"{percent} packets loss", stderr="", seconds=1.0)
        for percent in ("100.00%", "0.00%")
    )
    lost = {(first, 3, f"{peer} 192.0.2.4"): gone for peer in others}
    told = only(replace(scene, pings={**lost, (first, 4, f"{others[0]} 192.0.2.5"): there}))
    assert told.host == first
    assert told.observed == f"device 3: no answer from the same device of {', '.join(others)}"
