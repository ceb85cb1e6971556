"""A reservation of several UltraServers may part the hosts of one group, which only the running machines tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import resolve_topology
from infra.provision.aws import nvlink_domains
from infra.provision.aws.found import FoundReservation
from infra.spec.load import load_stack

BLOCK = FoundReservation(
    id="cr-0123456789abcdef0",
    instance_type="p6e-gb200.36xlarge",
    zone_name="us-east-1-dfw-2a",
    zone_id="use1-dfw2-az1",
    num_instances=18,
    state="active",
    start="",
    end="",
)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    return said


def topology(stack: str) -> Any:
    return resolve_topology(load_stack(stack), Catalog())[1]


@pytest.mark.parametrize(
    ("stack", "num_machines", "is_warned"),
    [
        ("gb200-2p1d", 18, False),
        ("gb200-2p1d", 19, True),
        ("gb200-tp4", 36, False),  # a group of one host spans nothing
        ("h200-2n-tp16", 36, False),  # its NVLink ends at the host
    ],
)
def test_groups_over_hosts_are_warned_of_where_the_reservation_is_larger_than_a_domain(
    warned: list[str], stack: str, num_machines: int, *, is_warned: bool
) -> None:
    found = replace(BLOCK, num_instances=num_machines)
    nvlink_domains.warn_of_several_domains(topology(stack), found)
    assert bool(warned) is is_warned
    if is_warned:
        assert "holds 19 machines" in warned[0]
        assert "at most 18" in warned[0]


def test_what_nobody_may_look_at_is_not_warned_of(warned: list[str]) -> None:
    nvlink_domains.warn_of_several_domains(topology("gb200-2p1d"), None)
    assert warned == []
