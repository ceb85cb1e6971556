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
    assert set(place_in_domains(topology(), 18).values()) == {0}


@pytest.mark.parametrize(
    ("num_decode", "hosts_per_domain", "num_domains"),
    [(4, 18, 1), (5, 18, 2), (2, 5, 3), (2, 4, 3)],
)
def test_no_group_spans_two_domains_and_none_holds_too_many(
    num_decode: int, hosts_per_domain: int, num_domains: int
) -> None:
    wanted = topology(f"roles.decode.replicas={num_decode}")
    placed = place_in_domains(wanted, hosts_per_domain)
    assert set(placed) == {host.name for host in wanted.hosts}
    for group in wanted.groups:
        assert len({placed[host] for host in group.hosts}) == 1
    counts = [list(placed.values()).count(each) for each in sorted(set(placed.values()))]
    assert max(counts) <= hosts_per_domain
    assert len(counts) == num_domains


def test_a_group_larger_than_a_domain_is_refused_by_name() -> None:
    with pytest.raises(ProblemsFound, match=r"decode/0 does not fit one NVLink domain of 3 hosts"):
        place_in_domains(topology(), 3)


def test_groups_that_share_hosts_share_their_domain() -> None:
    wanted = topology()
    first, *rest = wanted.groups
    shared = replace(wanted, groups=(first, replace(rest[0], seats=first.seats), *rest[1:]))
    placed = place_in_domains(shared, 4)
    assert {placed[host] for host in first.hosts} == {0}
