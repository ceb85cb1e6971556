from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infra.catalog import instance_types
from infra.catalog.instance_types import InstanceType, instance_type_names, read_instance_type
from infra.catalog.network_cards import (
    LAYOUT_POLICIES,
    Cards,
    InterfaceType,
    LayoutPolicy,
    NetworkCards,
    NetworkInterface,
    layout_problems,
)
from infra.rehearsal.cloud.interface_rules import LaunchInterface, layout_refusals
from infra.rehearsal.cloud.machine_facts import MachineFacts, machine_facts
from infra.spec.plain_yaml import read_yaml

EVERY_LAYOUT = [(name, policy) for name in instance_type_names() for policy in LAYOUT_POLICIES]
TYPES: tuple[InterfaceType, ...] = ("interface", "efa", "efa-only")


def launched(interfaces: tuple[NetworkInterface, ...]) -> tuple[LaunchInterface, ...]:
    return tuple(
        LaunchInterface(
            card=each.card, device=each.device, type=each.type, wants_public_address=False
        )
        for each in interfaces
    )


def emulated(cards: NetworkCards) -> MachineFacts:
    """The same hardware as the emulated cloud knows it."""
    return MachineFacts(
        name="made-up",
        architecture="x86_64",
        num_vcpus=1,
        capacity_kinds=(),
        num_cards=cards.num_cards,
        interfaces_per_card=cards.interfaces_per_card,
        efa_cards=frozenset(cards.efa.indices),
        efa_only_cards=frozenset(cards.efa_only.indices if cards.efa_only else ()),
    )


@st.composite
def hardware(draw: st.DrawFn) -> NetworkCards:
    """Any cards that could be built: some carry EFA, some of those nothing else."""
    num_cards = draw(st.integers(1, 20))
    first = draw(st.integers(0, num_cards - 1))
    efa = Cards(first=first, last=draw(st.integers(first, num_cards - 1)))
    only = Cards(first=max(first, 1), last=efa.last, step=draw(st.integers(1, 3)))
    return NetworkCards(
        num_cards=num_cards,
        interfaces_per_card=draw(st.integers(1, 4)),
        efa=efa,
        efa_only=draw(st.none() | st.just(only)),
    )


@st.composite
def interfaces(draw: st.DrawFn, cards: NetworkCards) -> tuple[NetworkInterface, ...]:
    """Any interfaces, within the cards or a little past them."""
    row = st.builds(
        NetworkInterface,
        card=st.integers(0, cards.num_cards),
        device=st.integers(0, cards.interfaces_per_card),
        type=st.sampled_from(TYPES),
    )
    primary = NetworkInterface(card=0, device=0, type=draw(st.sampled_from(TYPES)))
    return (primary, *draw(st.lists(row, max_size=12)))


@given(st.data())
def test_a_layout_without_problems_is_one_that_the_emulated_cloud_launches(
    data: st.DataObject,
) -> None:
    """Two programs written apart, by their authors' readings of the same page, agree on any hardware."""
    cards = data.draw(hardware())
    layout = data.draw(interfaces(cards))
    shared_by_one = layout_problems(cards, layout, num_accelerators=1)
    problems = [each for each in shared_by_one if not each.startswith("accelerators have")]
    refusals = list(layout_refusals(emulated(cards), launched(layout)))
    assert bool(problems) == bool(refusals)


@given(st.data())
def test_without_its_primary_interface_no_host_starts(data: st.DataObject) -> None:
    cards = data.draw(hardware())
    layout = tuple(each for each in data.draw(interfaces(cards)) if each.place != (0, 0))
    assert "card 0 has no interface at device 0, the primary one" in layout_problems(
        cards, layout, num_accelerators=1
    )


@given(st.sampled_from(EVERY_LAYOUT), st.data())
def test_a_layout_with_one_efa_device_taken_out_or_doubled_is_refused(
    chosen: tuple[str, LayoutPolicy], data: st.DataObject
) -> None:
    instance_type = read_instance_type(chosen[0])
    whole = instance_type.interfaces(chosen[1])
    devices = [each for each in whole if each.has_efa and each.place != (0, 0)]
    assume(len(devices) > 1)
    gone = data.draw(st.sampled_from(devices))
    for broken in (tuple(each for each in whole if each != gone), (*whole, gone)):
        assert layout_problems(
            instance_type.cards, broken, num_accelerators=instance_type.num_devices
        )


@pytest.mark.parametrize(("name", "policy"), EVERY_LAYOUT)
def test_every_shipped_layout_holds_to_the_invariants(name: str, policy: LayoutPolicy) -> None:
    """Said once more in plain words, beside the model that refuses files which break them."""
    instance_type = read_instance_type(name)
    layout = instance_type.interfaces(policy)
    first = layout[0]
    assert first.place == (0, 0)
    assert first.type in {"interface", "efa"}
    assert len({each.place for each in layout}) == len(layout)
    assert all(each.card < instance_type.cards.num_cards for each in layout)
    assert all(each.device < instance_type.cards.interfaces_per_card for each in layout)
    on_card = Counter(each.card for each in layout if each.has_efa)
    assert set(on_card.values()) == {1}
    assert set(on_card) <= set(instance_type.cards.efa.indices)
    machine = machine_facts(name)
    assert machine is not None
    assert list(layout_refusals(machine, launched(layout))) == []


# AWS, EC2 User Guide, efa-acc-inst-types, checked 2026-11-20: EFA devices and addresses of each policy.
# `addressed` follows from it: every EFA device is an `efa`, on GB200 at the cards that may have addresses.
COUNTS = {
    ("p5e.48xlarge", "ip-saving"): (32, 1),
    ("p5e.48xlarge", "maximum"): (32, 8),
    ("p5e.48xlarge", "addressed"): (32, 32),
    ("p5en.48xlarge", "ip-saving"): (16, 1),
    ("p5en.48xlarge", "maximum"): (16, 4),
    ("p5en.48xlarge", "addressed"): (16, 16),
    ("p6-b200.48xlarge", "ip-saving"): (8, 1),
    ("p6-b200.48xlarge", "maximum"): (8, 8),
    ("p6-b200.48xlarge", "addressed"): (8, 8),
    ("p6-b300.48xlarge", "ip-saving"): (16, 1),
    ("p6-b300.48xlarge", "maximum"): (16, 17),
    ("p6-b300.48xlarge", "addressed"): (16, 17),
    ("p6e-gb200.36xlarge", "ip-saving"): (4, 1),
    ("p6e-gb200.36xlarge", "maximum"): (8, 1),
    ("p6e-gb200.36xlarge", "addressed"): (8, 9),
}


@pytest.mark.parametrize(("name", "policy"), EVERY_LAYOUT)
def test_devices_and_addresses_are_those_that_aws_publishes(
    name: str, policy: LayoutPolicy
) -> None:
    instance_type = read_instance_type(name)
    devices = sum(each.has_efa for each in instance_type.interfaces(policy))
    assert (devices, instance_type.num_addresses(policy)) == COUNTS[name, policy]


@pytest.mark.parametrize("name", instance_type_names())
def test_an_addressed_layout_has_no_device_without_an_address(name: str) -> None:
    assert all(each.has_address for each in read_instance_type(name).interfaces("addressed"))


def test_gb200_puts_efa_only_devices_on_one_or_all_odd_cards_of_an_accelerator() -> None:
    instance_type = read_instance_type("p6e-gb200.36xlarge")
    used = {
        policy: [each.card for each in instance_type.interfaces(policy) if each.has_efa]
        for policy in LAYOUT_POLICIES
    }
    assert used["ip-saving"] == [1, 5, 9, 13]
    assert used["maximum"] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert used["addressed"] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert instance_type.least_efa_devices == 4


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        (
            "p6-b300.48xlarge",
            {"cards": {"first": 0, "last": 0}, "device": 1, "type": "efa-only"},
            "layouts.ip-saving: card 0 supports no EFA",
        ),
        (
            "p6e-gb200.36xlarge",
            {"cards": {"first": 3, "last": 3}, "device": 0, "type": "efa-only"},
            "layouts.ip-saving: accelerators have 2, 1, 1, 1 EFA devices beside them",
        ),
        (
            "p6e-gb200.36xlarge",
            {"cards": {"first": 7, "last": 7}, "device": 0, "type": "interface"},
            "layouts.ip-saving: card 7 carries efa-only interfaces alone",
        ),
        (
            "p5en.48xlarge",
            {"cards": {"first": 16, "last": 16}, "device": 4, "type": "interface"},
            "layouts.ip-saving: card 16 does not exist; there are 16",
        ),
    ],
)
def test_a_file_whose_layout_cannot_be_launched_is_refused_when_it_is_read(
    name: str, row: dict[str, object], said: str
) -> None:
    path = Path(instance_types.__file__).parent / "instances" / "aws" / f"{name}.yaml"
    data = read_yaml(path)
    data["layouts"]["ip-saving"].append(row)
    with pytest.raises(ValueError, match=re.escape(said)):
        InstanceType.model_validate({"id": name, **data})


def test_every_policy_is_laid_out_for_every_instance_type() -> None:
    path = Path(instance_types.__file__).parent / "instances" / "aws" / "p5en.48xlarge.yaml"
    data = read_yaml(path)
    del data["layouts"]["addressed"]
    with pytest.raises(ValueError, match=r"layouts\.addressed: missing"):
        InstanceType.model_validate({"id": "p5en.48xlarge", **data})


EKSCTL = "eksctl pkg/cfn/builder/network_interfaces.go@99984ad: efa on card 0, efa at device 1 on all others"
PULUMI_EKS = (
    "pulumi-eks nodejs/eks/nodes/instances.ts@7bf0c1b: efa on card 0, efa-only on cards 1 to N - 1"
)
WRONG_IN = {
    ("p6-b300.48xlarge", EKSCTL): {"card 0 supports no EFA"},
    ("p6-b300.48xlarge", PULUMI_EKS): {"card 0 supports no EFA"},
    # device 1 of a card that takes one interface, and addresses on cards that carry none
    ("p6e-gb200.36xlarge", EKSCTL): {
        "card 0 supports no EFA",
        "card 1 takes 1 interfaces; device 1 is past them",
        "card 1 carries efa-only interfaces alone",
    },
    ("p6e-gb200.36xlarge", PULUMI_EKS): {
        "card 0 supports no EFA",
        "card 1 takes 1 interfaces; device 1 is past them",
    },
}


def rival_layout(name: str, rival: str) -> tuple[NetworkInterface, ...]:
    cards = range(read_instance_type(name).cards.num_cards)
    others: InterfaceType = "efa" if rival == EKSCTL else "efa-only"
    return tuple(
        NetworkInterface(card=card, device=min(card, 1), type=others if card else "efa")
        for card in cards
    )


@pytest.mark.parametrize(("name", "rival"), WRONG_IN)
def test_layouts_of_two_well_known_tools_cannot_be_launched(name: str, rival: str) -> None:
    instance_type = read_instance_type(name)
    layout = rival_layout(name, rival)
    problems = layout_problems(
        instance_type.cards, layout, num_accelerators=instance_type.num_devices
    )
    assert WRONG_IN[name, rival] <= set(problems)
    machine = machine_facts(name)
    assert machine is not None
    refusals = " ".join(layout_refusals(machine, launched(layout)))
    assert "Network card 0" in refusals
    assert "does not support EFA" in refusals


@pytest.mark.parametrize("rival", [EKSCTL, PULUMI_EKS])
@pytest.mark.parametrize("name", ["p5en.48xlarge", "p6-b200.48xlarge"])
def test_their_layouts_are_right_where_every_card_is_alike(name: str, rival: str) -> None:
    instance_type = read_instance_type(name)
    assert not layout_problems(
        instance_type.cards, rival_layout(name, rival), num_accelerators=instance_type.num_devices
    )
