"""The parts of a launch template, whoever launches from it: written, and read back from one that stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
from pulumi_aws import ec2

from infra.catalog.instance_types import CapacityKind
from infra.catalog.network_cards import NetworkInterface
from infra.provision.aws.first_boot import weights_of
from infra.provision.naming import OWNER_TAGS

# Of Amazon Linux images; taken where nobody could be asked what the image's own is called.
USUAL_ROOT_DEVICE = "/dev/xvda"
# A template keeps the operator's tags that it was made with. Changed, they make no version of it (so AWS's provider,
# ec2_launch_template.go, Update), but leave its number unknown until then (CustomizeDiff): a preview would replace
# every machine.
KEPT_TAGS = [f"tags.{name}" for name in OWNER_TAGS]
# A hop limit of 1 keeps pods and containers with a network of their own from the machine's credentials. It does not
# bind what shares the host's network, as engines do: render/cloud_metadata.py does.
METADATA: Mapping[str, str | int] = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
}
# Serving images are read from it: four times the 125 MiB/s that gp3 has for its price, and twice the 3000 IOPS. A
# volume may have 500 IOPS a GiB, and 0.25 MiB/s for each of them (AWS, EC2 User Guide, "General Purpose SSD volumes",
# checked 2026-11-27).
ROOT_MIB_PER_S = 500
ROOT_IOPS = 6000
# On EKS another version of a template replaces nodes, and no operator asked for that: one that stands keeps its speed.
KEPT_SPEED = [f"blockDeviceMappings[0].ebs.{each}" for each in ("iops", "throughput")]
KEPT_KEY = "blockDeviceMappings[0].ebs.kmsKeyId"


def root_volume(
    size_gib: int, key_arn: str | None, device: str = USUAL_ROOT_DEVICE
) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    """A root volume, encrypted with a key (None: AWS's own), and faster than the least that the cloud gives."""
    return ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device,
        ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_type="gp3",
            volume_size=size_gib,
            iops=ROOT_IOPS,
            throughput=ROOT_MIB_PER_S,
            encrypted="true",
            kms_key_id=key_arn,
            delete_on_termination="true",
        ),
    )


def network_interface(
    interface: NetworkInterface,
    *,
    groups: Sequence[pulumi.Input[str]],
    subnet_id: pulumi.Input[str] | None,
) -> ec2.LaunchTemplateNetworkInterfaceArgs:
    """One interface of the layout; `subnet_id` is None where whoever launches chooses the subnet."""
    return ec2.LaunchTemplateNetworkInterfaceArgs(
        network_card_index=interface.card,
        device_index=interface.device,
        interface_type=interface.type,
        subnet_id=subnet_id,
        security_groups=list(groups),
        delete_on_termination="true",
    )


def capacity_arguments(kind: CapacityKind, reservation_id: str | None) -> dict[str, object]:
    """The launch template's arguments for the way that machines are bought."""
    if kind == "on-demand" or reservation_id is None:
        return {}
    specification = ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_preference="capacity-reservations-only",
        capacity_reservation_target={"capacity_reservation_id": reservation_id},
    )
    if kind == "odcr":
        return {"capacity_reservation_specification": specification}
    market = ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
    return {"capacity_reservation_specification": specification, "instance_market_options": market}


def layout_of(interfaces: Sequence[NetworkInterface]) -> list[tuple[int, int, str]]:
    """(card, device, type) of each interface, in order: a network layout as templates are compared by it."""
    return sorted((each.card, each.device, each.type) for each in interfaces)


def read_template(**chosen: object) -> dict[str, object]:
    """The newest version of a launch template that stands, by the words in which an operator speaks of it.

    Args:
        chosen: `id`, or `tags`.

    Raises:
        Exception: there is no such template, or the operator may not ask (the SDK raises nothing narrower).
    """
    found = ec2.get_launch_template(**chosen)
    volumes = [each.ebs[0] for each in found.block_device_mappings if each.ebs]
    targets = [
        target.capacity_reservation_id
        for each in found.capacity_reservation_specifications
        for target in each.capacity_reservation_targets
    ]
    return {
        "instance type": found.instance_type,
        **weights_of(found.user_data),
        "ami": found.image_id,
        "key_name": found.key_name,
        "root_volume_gib": int(volumes[0].volume_size) if volumes else None,
        "kms_key_arn": (volumes[0].kms_key_id or "") if volumes else "",
        "network layout": sorted(
            (int(each.network_card_index), int(each.device_index), each.interface_type)
            for each in found.network_interfaces
        ),
        "reservation_id": targets[0] if targets else "",
        "subnet": next((each.subnet_id for each in found.network_interfaces), None),
    }
