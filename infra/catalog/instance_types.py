"""What AWS rents: how each instance type is sold, its interface layouts and its image, as data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import StrictBool, StrictInt, StrictStr, model_validator

from infra.catalog.load import names_in, read_named
from infra.catalog.network_cards import (
    LAYOUT_POLICIES,
    InterfaceRow,
    LayoutPolicy,
    NetworkCards,
    NetworkInterface,
    expand_rows,
    layout_problems,
)
from infra.catalog.schema import Architecture
from infra.catalog.sourced import Entry, SourcedEntry, told

FOLDER = Path(__file__).resolve().parent / "instances" / "aws"

CapacityKind = Literal["on-demand", "odcr", "capacity-block", "ultraserver", "reservation"]
# Minutes before the end of a block by which its machines must be idle: AWS ends those of a capacity block from then
# on, those of UltraServers their owner ends (AWS, EC2 User Guide, "Capacity Blocks for ML"; checked 2026-11-20).
BLOCK_NOTICE_MINUTES: Mapping[CapacityKind, int] = {"capacity-block": 30, "ultraserver": 60}
# Before the end of a block, Amazon EKS scales managed node groups on it to zero (EKS User Guide, "Create a managed node
# group with Capacity Blocks for ML"; checked 2026-11-22).
MANAGED_NODES_NOTICE_MINUTES = 40


def notice_minutes(kind: CapacityKind, *, are_managed_nodes: bool) -> int | None:
    """Minutes before the end of a reservation by which its machines must be idle; None where they may run on.

    Args:
        kind: how the machines are bought.
        are_managed_nodes: whether they are of a managed node group on EKS.
    """
    notice = BLOCK_NOTICE_MINUTES.get(kind)
    if notice is None or not are_managed_nodes:
        return notice
    return max(notice, MANAGED_NODES_NOTICE_MINUTES)


class MachineImage(Entry):
    """The image a host starts from when the operator pins none.

    Args:
        ssm_parameter: public parameter whose value is the current image id.
        user: SSH login of the image.
    """

    ssm_parameter: StrictStr
    user: StrictStr


class InstanceType(SourcedEntry):
    """`instances/aws/<instance type>.yaml`.

    Args:
        on_demand_quota: code of the quota of EC2, in vCPUs, on what of its family runs on demand; None where it is not
            sold so.
    """

    id: StrictStr
    architecture: Architecture
    num_vcpus: StrictInt
    num_devices: StrictInt
    memory_gib: StrictInt
    capacity_kinds: tuple[CapacityKind, ...]
    cards: NetworkCards
    layouts: dict[LayoutPolicy, tuple[InterfaceRow, ...]]
    image: MachineImage
    is_in_local_zone: StrictBool = False
    on_demand_quota: StrictStr | None = None

    @model_validator(mode="after")
    def _lays_out_what_can_be_launched(self) -> Self:
        missing = [policy for policy in LAYOUT_POLICIES if policy not in self.layouts]
        problems = [f"layouts.{policy}: missing" for policy in missing] + [
            f"layouts.{policy}: {problem}"
            for policy, rows in self.layouts.items()
            for problem in layout_problems(
                self.cards, expand_rows(rows), num_accelerators=self.num_devices
            )
        ]
        if problems:
            what, fix = "; ".join(problems), "Mend `layouts` by the instance's network cards."
            raise told("layouts", what, fix)
        return self

    def interfaces(self, policy: LayoutPolicy) -> tuple[NetworkInterface, ...]:
        """The interfaces of one host, by card and device; the first is the primary one.

        Under each policy every accelerator reaches the fabric at its full rate. They differ in how many
        addresses of the subnet a host takes: one, what carries most ordinary traffic, or one per EFA device.
        """
        return expand_rows(self.layouts[policy])

    def num_addresses(self, policy: LayoutPolicy) -> int:
        """Addresses of the subnet that one host takes."""
        return sum(interface.has_address for interface in self.interfaces(policy))

    @property
    def least_efa_devices(self) -> int:
        """EFA devices that a host has at least, whichever layout it was launched with."""
        return min(
            sum(interface.has_efa for interface in self.interfaces(policy))
            for policy in LAYOUT_POLICIES
        )


def instance_type_names() -> tuple[str, ...]:
    """The instance types of the catalogue, sorted."""
    return names_in(FOLDER)


def read_instance_type(name: str) -> InstanceType:
    """The instance type of that name.

    Raises:
        UnknownIdError: the catalogue has none; the message names the nearest.
        CatalogueError: its file is wrong.
    """
    return read_named(FOLDER, InstanceType, "instance type", name)
