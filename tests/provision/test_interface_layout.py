from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.instance_types import LayoutPolicy, instance_type_names, read_instance_type
from infra.provision.interface_layout import (
    NetworkInterface,
    addresses_per_host,
    lay_out_interfaces,
)
from infra.rehearsal.cloud.interface_rules import LaunchInterface, layout_refusals
from infra.rehearsal.cloud.machine_facts import machine_facts

POLICIES: tuple[LayoutPolicy, ...] = ("ip-saving", "maximum")
names = st.sampled_from(instance_type_names())
policies = st.sampled_from(POLICIES)


def launched(interfaces: tuple[NetworkInterface, ...]) -> tuple[LaunchInterface, ...]:
    return tuple(
        LaunchInterface(
            card=each.card, device=each.device, type=each.type, wants_public_address=False
        )
        for each in interfaces
    )


@given(names, policies)
def test_the_primary_interface_carries_the_address(name: str, policy: LayoutPolicy) -> None:
    interfaces = lay_out_interfaces(read_instance_type(name), policy)
    first, *others = interfaces
    assert (first.card, first.device) == (0, 0)
    assert first.has_address
    assert (0, 0) not in {(each.card, each.device) for each in others}


@given(names, policies)
def test_every_interface_has_a_place_of_its_own_within_the_cards(
    name: str, policy: LayoutPolicy
) -> None:
    instance_type = read_instance_type(name)
    interfaces = lay_out_interfaces(instance_type, policy)
    places = Counter((each.card, each.device) for each in interfaces)
    assert max(places.values()) == 1
    assert all(each.card < instance_type.cards.num_cards for each in interfaces)
    assert all(each.device < instance_type.cards.interfaces_per_card for each in interfaces)


@given(names, policies)
def test_a_card_carries_at_most_one_efa_device_and_only_where_it_can(
    name: str, policy: LayoutPolicy
) -> None:
    instance_type = read_instance_type(name)
    cards = Counter(each.card for each in lay_out_interfaces(instance_type, policy) if each.has_efa)
    assert set(cards.values()) == {1}
    assert set(cards) <= set(instance_type.cards.efa.indices)


@given(names, policies)
def test_the_emulated_cloud_launches_every_layout(name: str, policy: LayoutPolicy) -> None:
    machine = machine_facts(name)
    assert machine is not None
    interfaces = lay_out_interfaces(read_instance_type(name), policy)
    assert list(layout_refusals(machine, launched(interfaces))) == []


@given(names)
def test_both_policies_use_all_of_the_fabric(name: str) -> None:
    """Bandwidth of EFA is the same; only the addresses differ."""
    instance_type = read_instance_type(name)
    saving, maximum = (lay_out_interfaces(instance_type, policy) for policy in POLICIES)
    assert addresses_per_host(saving) == 1
    assert addresses_per_host(maximum) >= 1
    used = {each.card for each in saving if each.has_efa}
    assert used <= {each.card for each in maximum if each.has_efa}


# AWS, EC2 User Guide, efa-acc-inst-types, checked 2026-11-20: EFA devices and addresses of each policy.
COUNTS = {
    ("p5e.48xlarge", "ip-saving"): (32, 1),
    ("p5e.48xlarge", "maximum"): (32, 8),
    ("p5en.48xlarge", "ip-saving"): (16, 1),
    ("p5en.48xlarge", "maximum"): (16, 4),
    ("p6-b200.48xlarge", "ip-saving"): (8, 1),
    ("p6-b200.48xlarge", "maximum"): (8, 8),
    ("p6-b300.48xlarge", "ip-saving"): (16, 1),
    ("p6-b300.48xlarge", "maximum"): (16, 17),
    ("p6e-gb200.36xlarge", "ip-saving"): (4, 1),
    ("p6e-gb200.36xlarge", "maximum"): (8, 1),
}


@pytest.mark.parametrize(("name", "policy"), COUNTS)
def test_devices_and_addresses_are_those_that_aws_publishes(
    name: str, policy: LayoutPolicy
) -> None:
    interfaces = lay_out_interfaces(read_instance_type(name), policy)
    assert (sum(each.has_efa for each in interfaces), addresses_per_host(interfaces)) == COUNTS[
        name, policy
    ]


@given(policies)
def test_gb200_puts_efa_on_odd_cards_alone(policy: LayoutPolicy) -> None:
    interfaces = lay_out_interfaces(read_instance_type("p6e-gb200.36xlarge"), policy)
    assert all(each.card % 2 == 1 for each in interfaces if each.has_efa)


def test_every_instance_type_has_a_row_of_published_counts() -> None:
    assert {name for name, _ in COUNTS} == set(instance_type_names())


EKSCTL = "eksctl pkg/cfn/builder/network_interfaces.go@99984ad: efa on card 0, efa at device 1 on all others"
PULUMI_EKS = (
    "pulumi-eks nodejs/eks/nodes/instances.ts@7bf0c1b: efa on card 0, efa-only on cards 1 to N - 1"
)


def rival_layout(name: str, rival: str) -> tuple[LaunchInterface, ...]:
    cards = range(read_instance_type(name).cards.num_cards)
    others = "efa" if rival == EKSCTL else "efa-only"
    return tuple(
        LaunchInterface(
            card=card,
            device=min(card, 1),
            type=others if card else "efa",
            wants_public_address=False,
        )
        for card in cards
    )


@pytest.mark.parametrize("rival", [EKSCTL, PULUMI_EKS])
@pytest.mark.parametrize("name", ["p6-b300.48xlarge", "p6e-gb200.36xlarge"])
def test_layouts_of_two_well_known_tools_cannot_be_launched(name: str, rival: str) -> None:
    machine = machine_facts(name)
    assert machine is not None
    refusals = " ".join(layout_refusals(machine, rival_layout(name, rival)))
    assert "Network card 0" in refusals
    assert "does not support EFA" in refusals
