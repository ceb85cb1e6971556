"""Nothing is launched into a block whose machines have to be idle by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.catalog.instance_types import CapacityKind
from infra.errors import ProblemsFound
from infra.provision.aws.account import Demand
from infra.provision.aws.found import FoundReservation, past_notice_problem
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import Store

NOW = datetime(2099, 12, 15, 11, 0, tzinfo=UTC)


def block(end: str, state: str = "active") -> FoundReservation:
    return FoundReservation(
        id=RESERVATION,
        instance_type="p6-b200.48xlarge",
        zone_name="us-east-2a",
        zone_id="use2-az1",
        num_instances=1,
        state=state,
        start="",
        end=end,
    )


def demand(capacity: CapacityKind, *, has_login: bool) -> Demand:
    return Demand(
        stack="mine",
        capacity=capacity,
        num_hosts=1,
        num_addresses=1,
        uses_lustre=False,
        wants_load_balancer=False,
        has_login=has_login,
    )


@pytest.mark.parametrize(
    ("capacity", "has_login", "minutes_left", "is_late"),
    [
        ("capacity-block", True, 31, False),
        ("capacity-block", True, 30, True),
        ("capacity-block", False, 41, False),  # EKS takes its nodes earlier
        ("capacity-block", False, 40, True),
        ("ultraserver", True, 61, False),
        ("ultraserver", True, 60, True),
        ("odcr", True, 1, False),  # its machines run on
        ("on-demand", True, 1, False),
    ],
)
def test_a_block_takes_nothing_more_once_its_notice_has_begun(
    capacity: CapacityKind, minutes_left: int, *, has_login: bool, is_late: bool
) -> None:
    end = (NOW + timedelta(minutes=minutes_left)).isoformat()
    found = past_notice_problem(block(end), demand(capacity, has_login=has_login), NOW)
    assert (found is not None) == is_late
    if found is not None:
        assert end in found.what
        assert "pulumi destroy --" in found.fix
        assert "--stack mine" in found.fix
        assert "pulumi config set reservation_id" in found.fix


@pytest.mark.parametrize("end", ["", "soon", "2099-12-15T11:30:00"])
def test_an_end_that_is_no_moment_is_left_alone(end: str) -> None:
    assert past_notice_problem(block(end), demand("ultraserver", has_login=True), NOW) is None


def test_of_a_block_that_is_over_only_that_is_told() -> None:
    over = block("2000-01-01T00:00:00Z", "expired")
    assert past_notice_problem(over, demand("ultraserver", has_login=True), NOW) is None


@pytest.mark.parametrize("stack", ["gb200-2p1d", "eks-b200-tp8"])
def test_the_program_asks_for_the_end_before_the_first_resource(
    record: Callable[..., Any], stack: str
) -> None:
    def ending(store: Store) -> Mapping[str, str]:
        end = (datetime.now(UTC) + timedelta(minutes=20)).isoformat()
        known = replace(store.account.reservations[RESERVATION], end=end)
        store.account = replace(store.account, reservations={RESERVATION: known})
        return {}

    with pytest.raises(ProblemsFound, match="nothing is launched into it any more"):
        record(stack, prepare=ending)


def test_eks_may_bring_the_nodes_of_a_block_to_none(record: Callable[..., Any]) -> None:
    nodes = record("eks-b200-tp8").of_type("NodeGroup")
    assert nodes["accelerators"]["scalingConfig"]["minSize"] == 0
    assert nodes["system"]["scalingConfig"]["minSize"] > 0
