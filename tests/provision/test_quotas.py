"""Quotas are asked before the first machine that is bought on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.instance_types import instance_type_names, read_instance_type
from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.provision.aws.capacity import plan_capacity
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.world import QUOTAS
from infra.spec.stack import Capacity
from tests.provision.belongings import own_stack
from tests.provision.test_capacity import topology

Record = Callable[..., Any]
P_QUOTA = "L-417A185B"


def with_quota(num_vcpus: int) -> Callable[[Store], Mapping[str, str]]:
    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, quotas={P_QUOTA: num_vcpus})
        return {}

    return prepare


def test_every_type_that_is_sold_on_demand_has_its_quota() -> None:
    types = [read_instance_type(name) for name in instance_type_names()]
    with_one = {each.id for each in types if each.on_demand_quota}
    assert with_one == {each.id for each in types if "on-demand" in each.capacity_kinds}
    assert {each.on_demand_quota for each in types} - {None} == set(QUOTAS)


@pytest.mark.parametrize("num_vcpus", [0, 383])
@pytest.mark.parametrize("platform", ["aws-ec2", "aws-eks"])
def test_a_quota_that_cannot_hold_the_machines_is_refused_with_the_command_that_raises_it(
    record: Record, tmp_path: Path, num_vcpus: int, platform: str
) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", platform=platform)
    with pytest.raises(ProblemsFound) as caught:
        record("mine", root=root, prepare=with_quota(num_vcpus))
    told = str(caught.value)
    assert f"Running On-Demand P instances, a quota on vCPUs, is {num_vcpus} in us-east-1" in told
    assert "the stack's machines have 384." in told
    assert f"--quota-code {P_QUOTA} --desired-value 384 --region us-east-1" in told


def test_a_quota_that_just_holds_them_refuses_nothing(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16")
    assert record("mine", root=root, prepare=with_quota(384)).of_type("Instance")


def test_machines_of_one_quota_are_added_up_and_reserved_ones_are_not_asked_for(
    catalog: Catalog,
) -> None:
    mixed = topology(catalog, "h200", "b200", "h200")
    assert plan_capacity(mixed, Capacity(kind="on-demand")).quotas == {P_QUOTA: 3 * 192}
    for kind in ("odcr", "capacity-block"):
        wanted = Capacity.model_validate({"kind": kind})
        assert plan_capacity(topology(catalog, "h200"), wanted).quotas == {}


@pytest.mark.parametrize("kind", ["odcr", "capacity-block"])
def test_no_quota_stands_in_the_way_of_a_reservation(
    record: Record, tmp_path: Path, kind: str
) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", capacity={"kind": kind})
    assert record("mine", root=root, prepare=with_quota(0)).of_type("Instance")


def test_whoever_may_not_ask_is_warned(record: Record, tmp_path: Path) -> None:
    def forbid(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, forbidden=("getServiceQuota",))
        return {}

    recorded = record("mine", root=own_stack(tmp_path, "h200-2n-tp16"), prepare=forbid)
    (told,) = [line for line in recorded.said if P_QUOTA in line]
    assert told.startswith("warn: aws:region: quota")
    assert "you may not ask" in told


def test_a_quota_that_nobody_tells_refuses_nothing(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.rehearsal.cloud.lookups.QUOTAS", {})
    recorded = record("mine", root=own_stack(tmp_path, "h200-2n-tp16", port=8001))
    (told,) = [line for line in recorded.said if P_QUOTA in line]
    assert "There is no quota" in told
    assert recorded.of_type("Instance")
