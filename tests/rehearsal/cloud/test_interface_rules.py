from __future__ import annotations

import pytest

from infra.rehearsal.cloud.interface_rules import LaunchInterface, layout_refusals
from infra.rehearsal.cloud.machine_facts import machine_facts


def interfaces(*rows: tuple[int, int, str], public: bool = False) -> list[LaunchInterface]:
    return [
        LaunchInterface(card=card, device=device, type=kind, wants_public_address=public)
        for card, device, kind in rows
    ]


CASES = [
    ("p5en.48xlarge", interfaces((1, 0, "efa-only")), "primary network interface"),
    ("p5en.48xlarge", interfaces((0, 0, "efa-only")), "efa-only interface cannot be the primary"),
    ("p5en.48xlarge", interfaces((0, 0, "bogus")), "Value (bogus)"),
    ("p5en.48xlarge", interfaces((0, 0, "efa"), (0, 1, "efa-only")), "carries one EFA device"),
    (
        "p5en.48xlarge",
        interfaces((0, 0, "interface"), (16, 0, "efa-only")),
        "card 16 does not exist",
    ),
    ("p5en.48xlarge", interfaces((0, 0, "interface"), (1, 4, "efa-only")), "takes 4 interfaces"),
    ("p5en.48xlarge", interfaces((0, 0, "interface"), (0, 0, "interface")), "specified 2 times"),
    (
        "p5en.48xlarge",
        interfaces((0, 0, "interface"), (1, 1, "interface"), public=True),
        "associatePublicIpAddress",
    ),
    (
        "p6-b300.48xlarge",
        interfaces((0, 0, "efa")),
        "card 0 of p6-b300.48xlarge does not support EFA",
    ),
    (
        "p6-b300.48xlarge",
        interfaces((0, 0, "interface"), (0, 1, "efa-only")),
        "does not support EFA",
    ),
    (
        "p6e-gb200.36xlarge",
        interfaces((0, 0, "interface"), (1, 0, "efa")),
        "efa-only interfaces alone",
    ),
]


@pytest.mark.parametrize(("name", "layout", "said"), CASES)
def test_impossible_layouts_are_refused(
    name: str, layout: list[LaunchInterface], said: str
) -> None:
    machine = machine_facts(name)
    assert machine is not None
    assert said in " ".join(layout_refusals(machine, layout))


def test_one_public_address_is_possible_with_efa_only_beside_it() -> None:
    machine = machine_facts("p5en.48xlarge")
    assert machine is not None
    layout = interfaces((0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only"), public=True)
    assert list(layout_refusals(machine, layout)) == []


def test_an_unknown_type_has_no_facts() -> None:
    assert machine_facts("p9.48xlarge") is None
    assert machine_facts("../accelerators/gb200") is None
