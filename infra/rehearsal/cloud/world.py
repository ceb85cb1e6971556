"""What the emulated cloud offers everywhere: zones, offerings, services, images.

Zone ids and the Local Zone: AWS, EC2 User Guide, "Regions and Zones"; where instance types are offered:
facts of the regional offering dump of moto 5.2.5, by region only (its letters differ per account).
Checked 2026-11-20. The Local Zone's parent is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ZoneType = Literal["availability-zone", "local-zone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudZone:
    """A zone as `DescribeAvailabilityZones` tells it; names' letters are those of this one account."""

    zone_id: str
    name: str
    region: str
    type: ZoneType
    group: str
    parent_id: str


def _ordinary(region: str, short: str, count: int) -> dict[str, CloudZone]:
    return {
        f"{short}-az{number}": CloudZone(
            zone_id=f"{short}-az{number}",
            name=f"{region}{'abcdef'[number - 1]}",
            region=region,
            type="availability-zone",
            group=region,
            parent_id="",
        )
        for number in range(1, count + 1)
    }


# Quotas of EC2 by their codes: name, and the value of an operator who has asked for enough. A new account's is near 0.
QUOTAS: Mapping[str, tuple[str, int]] = {"L-417A185B": ("Running On-Demand P instances", 1_000_000)}

DALLAS = CloudZone(
    zone_id="use1-dfw2-az1",
    name="us-east-1-dfw-2a",
    region="us-east-1",
    type="local-zone",
    group="us-east-1-dfw-2",
    parent_id="use1-az6",
)
ZONES: Mapping[str, CloudZone] = {
    **_ordinary("us-east-1", "use1", 6),
    **_ordinary("us-east-2", "use2", 3),
    **_ordinary("us-west-2", "usw2", 4),
    **_ordinary("ap-northeast-1", "apne1", 3),
    **_ordinary("eu-north-1", "eun1", 3),
    DALLAS.zone_id: DALLAS,
}

# Instance type → regions (ordinary zones) that offer it; the UltraServer is offered in one Local Zone alone.
OFFERED_IN: Mapping[str, tuple[str, ...]] = {
    "p5e.48xlarge": ("eu-north-1", "us-east-2", "us-west-2"),
    "p5en.48xlarge": ("ap-northeast-1", "eu-north-1", "us-east-1", "us-east-2", "us-west-2"),
    "p6-b200.48xlarge": ("eu-north-1", "us-east-1", "us-east-2", "us-west-2"),
    "p6-b300.48xlarge": ("us-east-1", "us-west-2"),
    "p6e-gb200.36xlarge": (),
}
LOCAL_ZONE_TYPES: Mapping[str, tuple[str, ...]] = {DALLAS.zone_id: ("p6e-gb200.36xlarge",)}

GATEWAY_SERVICES = ("s3", "dynamodb")
INTERFACE_SERVICES = (
    *(
        "ssm",
        "ssmmessages",
        "ec2messages",
        "ec2",
        "ecr.api",
        "ecr.dkr",
        "sts",
        "logs",
        "s3",
        "fsx",
        "kms",
    ),
    *("elasticloadbalancing", "eks", "eks-auth", "autoscaling"),
)
MANAGED_POLICIES = (
    "AmazonSSMManagedInstanceCore",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEKSClusterPolicy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonS3ReadOnlyAccess",
)

_DLAMI = (
    "/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-{system}/latest/ami-id"
)
_SYSTEMS = ("amazon-linux-2023", "ubuntu-22.04", "ubuntu-24.04")
PARAMETERS: Mapping[str, tuple[str, str]] = {
    _DLAMI.format(architecture=architecture, system=system): (f"ami-{number:017x}", machine)
    for number, (architecture, machine, system) in enumerate(
        (
            (architecture, machine, system)
            for architecture, machine in (("x86_64", "x86_64"), ("arm64", "aarch64"))
            for system in _SYSTEMS
        ),
        start=0xE0,
    )
}
"""Public parameter → image id, architecture of the image."""
IMAGES: Mapping[str, str] = dict(PARAMETERS.values())

# EKS on a day: Kubernetes versions under standard or extended support, the default version of each add-on, zones that
# take no control plane (EKS User Guide, "Kubernetes versions", "Subnet requirements and considerations").
KUBERNETES_VERSIONS = ("1.33", "1.34", "1.35")
ADDONS: Mapping[str, str] = {
    "vpc-cni": "v1.20.4-eksbuild.2",
    "kube-proxy": "v1.35.0-eksbuild.2",
    "coredns": "v1.12.4-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.1",
    "eks-node-monitoring-agent": "v1.4.1-eksbuild.1",
    "aws-fsx-csi-driver": "v1.9.0-eksbuild.1",
}
NO_CONTROL_PLANE = ("use1-az3", "usw1-az2", "cac1-az3")
# Machines without accelerators, and the image that a node group starts them from.
ORDINARY_MACHINES: Mapping[str, str] = {
    "m7i.2xlarge": "AL2023_x86_64_STANDARD",
    "m7g.2xlarge": "AL2023_ARM_64_STANDARD",
}
_NODE_IMAGE = (
    "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{kind}/recommended/"
    "release_version"
)
NODE_IMAGES: Mapping[str, str] = {
    _NODE_IMAGE.format(
        version=version, architecture=architecture, kind=kind
    ): f"{version}.0-20260101"
    for version in KUBERNETES_VERSIONS
    for architecture in ("x86_64", "arm64")
    for kind in ("nvidia", "standard")
}
"""Public parameter → release of a node's image."""


def is_offered(instance_type: str, zone: CloudZone) -> bool:
    """Whether an instance type can be launched in a zone."""
    if zone.type == "local-zone":
        return instance_type in LOCAL_ZONE_TYPES.get(zone.zone_id, ())
    return zone.region in OFFERED_IN.get(instance_type, ())
