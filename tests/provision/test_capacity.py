from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.topology import Topology, TopologyHost
from infra.provision.aws.capacity import plan_capacity
from infra.spec.stack import Capacity
from tests.provision.belongings import own_stack


def topology(catalog: Catalog, *accelerators: str) -> Topology:
    hosts = tuple(
        TopologyHost(
            name=f"unified-{number}", roles=("unified",), accelerator=catalog.accelerator(name)
        )
        for number, name in enumerate(accelerators)
    )
    return Topology(
        stack="mine",
        platform="aws-ec2",
        workload="leader-worker-set",
        hosts=hosts,
        groups=(),
    )


def refused(topology: Topology, capacity: Capacity | None) -> str:
    with pytest.raises(ProblemsFound) as caught:
        plan_capacity(topology, capacity)
    return str(caught.value)


def test_an_ultraserver_is_the_only_way_to_rent_gb200(catalog: Catalog) -> None:
    plan = plan_capacity(topology(catalog, "gb200", "gb200"), Capacity(kind="ultraserver"))
    assert (plan.kind, plan.num_addresses, plan.wants_placement_group) == ("ultraserver", 2, False)
    wrong = refused(topology(catalog, "gb200"), Capacity(kind="on-demand"))
    assert "p6e-gb200.36xlarge is not sold as on-demand. Use ultraserver." in wrong


@pytest.mark.parametrize(
    ("kind", "hosts", "is_wanted"),
    [
        ("on-demand", 2, True),
        ("on-demand", 1, False),
        ("capacity-block", 2, False),
        ("odcr", 2, False),
    ],
)
def test_only_machines_bought_on_demand_get_a_placement_group(
    catalog: Catalog, kind: str, hosts: int, is_wanted: bool
) -> None:
    capacity = Capacity.model_validate({"kind": kind})
    plan = plan_capacity(topology(catalog, *["h200"] * hosts), capacity)
    assert plan.wants_placement_group is is_wanted


def test_the_maximum_layout_takes_more_addresses(catalog: Catalog) -> None:
    capacity = Capacity(kind="capacity-block", network_layout="maximum")
    assert plan_capacity(topology(catalog, "b300", "b300"), capacity).num_addresses == 34


def test_an_accelerator_that_aws_does_not_rent_is_refused(catalog: Catalog) -> None:
    assert "AWS rents no mi300x. Set platform: existing-hosts" in refused(
        topology(catalog, "mi300x"), None
    )


@pytest.mark.parametrize(
    ("accelerators", "kinds"),
    [
        (("h200",), "with on-demand or odcr or capacity-block."),
        (("gb200", "gb200"), "with ultraserver."),
        (("h200", "b200"), "with on-demand."),
    ],
)
def test_a_stack_that_does_not_say_how_it_is_bought_is_told_the_kinds(
    catalog: Catalog, accelerators: tuple[str, ...], kinds: str
) -> None:
    told = refused(topology(catalog, *accelerators), None)
    assert "stacks/mine.yaml capacity.kind: It does not say how " in told
    assert f"Write capacity: {{kind: KIND}} {kinds}" in told


@pytest.mark.parametrize("base", ["h200-tp8", "gb200-tp4", "eks-b200-tp8"])
def test_no_resource_is_registered_for_a_stack_that_does_not_say_how_it_is_bought(
    base: str, tmp_path: Path, record: Callable[..., Any]
) -> None:
    with pytest.raises(ProblemsFound, match="no kind is a default") as caught:
        record("mine", root=own_stack(tmp_path, base, capacity=None))
    assert [each.rule for each in caught.value.problems] == ["capacity-unsaid"]


def test_one_reservation_does_not_hold_two_instance_types(catalog: Catalog) -> None:
    mixed = topology(catalog, "h200", "b200")
    assert "One reservation cannot hold" in refused(mixed, Capacity(kind="odcr"))
    assert plan_capacity(mixed, Capacity(kind="on-demand")).num_hosts == 2


def test_an_instance_type_that_the_catalogue_does_not_know_is_named(catalog: Catalog) -> None:
    plain = topology(catalog, "h200")
    odd = plain.hosts[0].accelerator.model_copy(update={"instances": {"aws": "p9.48xlarge"}})
    with pytest.raises(Exception, match=r"The catalogue has no instance type p9.48xlarge"):
        plan_capacity(replace(plain, hosts=(plain.hosts[0]._replace(accelerator=odd),)), None)
