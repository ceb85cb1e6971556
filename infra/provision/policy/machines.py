"""The rules about machines that stand: what would replace or delete them by accident.

An analyzer is shown what a program declares, and no step of the engine: a replacement itself is not seen here. What
makes one possible is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.provision.policy.declared import Declared, Findings, map_of, text_of

INSTANCE = "aws:ec2/instance:Instance"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CAPACITY_TAG = "moe-infra:capacity"
_LAUNCH_TEMPLATE = "launchTemplate"
_BLOCK = "CAPACITY_BLOCK"


def find_replaceable(resource: Declared) -> Findings:
    """Machines that another version of their launch template would replace, and that nobody has named."""
    is_launched = resource.type == INSTANCE and resource.map(_LAUNCH_TEMPLATE)
    if is_launched and not resource.may_go and _LAUNCH_TEMPLATE not in resource.ignores:
        yield (
            "Another version of its launch template would replace it: ignore changes of launchTemplate, or name it "
            "in replace_machines."
        )


def find_unprotected(resources: Sequence[Declared]) -> Iterator[tuple[Declared, str]]:
    """Machines and node groups on reserved capacity that the engine may delete, and that nobody has named."""
    for each in resources:
        if each.is_protected or not _is_reserved(each):
            continue
        if each.type == NODE_GROUP:
            yield (
                each,
                "Its nodes stand on reserved capacity, and it is not protected: set protect.",
            )
        elif each.type == INSTANCE and not each.may_go:
            yield (
                each,
                "It stands on reserved capacity and is not protected: set protect, or name it in replace_machines.",
            )


def _is_reserved(machine: Declared) -> bool:
    """Whether a machine comes from a reservation, by itself or by its launch template."""
    templates = machine.refers_to.get(_LAUNCH_TEMPLATE, ())
    return machine.text("capacityType") == _BLOCK or any(
        _targets_reservation(each) for each in (machine, *templates)
    )


def _targets_reservation(resource: Declared) -> bool:
    kind = text_of(resource.map("tags"), CAPACITY_TAG) or "on-demand"
    target = map_of(resource.map("capacityReservationSpecification"), "capacityReservationTarget")
    return kind != "on-demand" or bool(target)
