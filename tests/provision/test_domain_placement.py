"""Groups are put into NVLink domains so that none spans two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.compile import resolve_topology
from infra.provision.nvlink_domains import place_in_domains
from infra.spec.load import load_stack


def topology(*overrides: str) -> Any:
    return resolve_topology(load_stack("gcp-gb200-2p1d", overrides), Catalog())[1]


def test_a_stack_that_fits_one_domain_has_one() -> None:
    assert set(place_in_domains(topology(), 18, {}).values()) == {0}


@pytest.mark.parametrize(
    ("num_decode", "hosts_per_domain", "num_domains"),
    [(4, 18, 1), (5, 18, 2), (2, 5, 2), (2, 4, 3), (2, 8, 2)],
)
def test_no_group_spans_two_domains_and_none_holds_too_many(
    num_decode: int, hosts_per_domain: int, num_domains: int
) -> None:
    wanted = topology(f"roles.decode.replicas={num_decode}")
    placed = place_in_domains(wanted, hosts_per_domain, {})
    assert set(placed) == {host.name for host in wanted.hosts}
    for group in wanted.groups:
        assert len({placed[host] for host in group.hosts}) == 1
    counts = [list(placed.values()).count(each) for each in sorted(set(placed.values()))]
    assert max(counts) <= hosts_per_domain
    assert len(counts) == num_domains


def test_a_group_larger_than_a_domain_is_refused_by_name() -> None:
    with pytest.raises(
        ProblemsFound, match=r"The 4 hosts of decode/0 do not fit one NVLink domain of 3"
    ):
        place_in_domains(topology(), 3, {})


def test_groups_that_share_hosts_share_their_domain() -> None:
    wanted = topology()
    one, two, decode = wanted.groups
    over_both = replace(one, seats=(*one.seats, *two.seats))
    placed = place_in_domains(replace(wanted, groups=(two, over_both, decode)), 5, {})
    assert placed["prefill-0"] == placed["prefill-1"] != placed["decode-0"]


def test_machines_that_stand_stay_in_their_domains_and_new_ones_fill_them() -> None:
    before = place_in_domains(topology(), 7, {})
    wanted = topology("roles.prefill.replicas=3", "roles.decode.replicas=2")
    placed = place_in_domains(wanted, 7, before)
    assert {host: placed[host] for host in before} == before
    assert placed["prefill-2"] == before["prefill-0"]
    assert {placed[host] for host in placed if host not in before and "decode" in host} == {1}


def test_a_group_that_lost_a_machine_gets_the_next_one_in_its_domain() -> None:
    before = dict(place_in_domains(topology("roles.decode.replicas=2"), 5, {}))
    home = before.pop("decode-5")
    assert place_in_domains(topology("roles.decode.replicas=2"), 5, before)["decode-5"] == home


def test_a_group_whose_machines_stand_in_two_domains_is_refused() -> None:
    with pytest.raises(ProblemsFound, match="machines of theirs stand in several"):
        place_in_domains(topology(), 18, {"decode-0": 0, "decode-1": 1})


def test_what_is_joined_by_a_small_group_is_placed_before_what_stands_alone() -> None:
    wanted = topology("roles.decode.replicas=2")
    one, two, *decode = wanted.groups
    # the second prefill group shares a host with a decode group: five hosts of two groups belong together
    seats = (*two.seats, decode[1].seats[0])
    joined = replace(wanted, groups=(one, replace(two, seats=seats), *decode))
    placed = place_in_domains(joined, 5, {})
    assert len({placed[host] for host in {*joined.groups[1].hosts, *decode[1].hosts}}) == 1
    assert len(set(placed.values())) == 2
