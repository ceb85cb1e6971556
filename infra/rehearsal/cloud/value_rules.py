"""Whether values are those that AWS takes: its own service models say which words, which lengths, which numbers.

`aws_values.json` holds the shapes named here, as botocore carries them; `scripts/dump-aws-values` writes it. Properties
that no shape is named for are judged by `published_schemas`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from infra.rehearsal.cloud.kind import values_at
from infra.rehearsal.cloud.published_schemas import published_values

FILE = Path(__file__).with_name("aws_values.json")
SERVICES = ("ec2", "efs", "elbv2", "fsx", "iam")

# Property path of a resource type → `service.Shape` of the model that its value goes to.
SHAPES: Mapping[str, Mapping[str, str]] = {
    "aws:ec2/availabilityZoneGroup:AvailabilityZoneGroup": {
        "optInStatus": "ec2.ModifyAvailabilityZoneOptInStatus",
    },
    "aws:ec2/eip:Eip": {"domain": "ec2.DomainType"},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "blockDeviceMappings[].ebs.volumeType": "ec2.VolumeType",
        "capacityReservationSpecification.capacityReservationPreference": "ec2.CapacityReservationPreference",
        "instanceMarketOptions.marketType": "ec2.MarketType",
        "metadataOptions.httpEndpoint": "ec2.LaunchTemplateInstanceMetadataEndpointState",
        "metadataOptions.httpTokens": "ec2.LaunchTemplateHttpTokensState",
        "placement.tenancy": "ec2.Tenancy",
        "tagSpecifications[].resourceType": "ec2.ResourceType",
    },
    "aws:ec2/natGateway:NatGateway": {"connectivityType": "ec2.ConnectivityType"},
    "aws:ec2/placementGroup:PlacementGroup": {"strategy": "ec2.PlacementStrategy"},
    "aws:ec2/vpc:Vpc": {"instanceTenancy": "ec2.Tenancy"},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"vpcEndpointType": "ec2.VpcEndpointType"},
    "aws:efs/fileSystem:FileSystem": {
        "performanceMode": "efs.PerformanceMode",
        "throughputMode": "efs.ThroughputMode",
    },
    "aws:efs/mountTarget:MountTarget": {
        "securityGroups[]": "efs.SecurityGroup",
        "subnetId": "efs.SubnetId",
    },
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": {
        "fileSystemPath": "fsx.Namespace",
        "s3.autoExportPolicy.events[]": "fsx.EventType",
        "s3.autoImportPolicy.events[]": "fsx.EventType",
    },
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "deploymentType": "fsx.LustreDeploymentType",
        "fileSystemTypeVersion": "fsx.FileSystemTypeVersion",
        "metadataConfiguration.mode": "fsx.MetadataConfigurationMode",
        "perUnitStorageThroughput": "fsx.PerUnitStorageThroughput",
        "storageCapacity": "fsx.StorageCapacity",
        "storageType": "fsx.StorageType",
    },
    "aws:iam/instanceProfile:InstanceProfile": {"name": "iam.instanceProfileNameType"},
    "aws:iam/role:Role": {"name": "iam.roleNameType"},
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": {"policyArn": "iam.arnType"},
    "aws:lb/listener:Listener": {
        "defaultActions[].type": "elbv2.ActionTypeEnum",
        "port": "elbv2.Port",
        "protocol": "elbv2.ProtocolEnum",
    },
    "aws:lb/loadBalancer:LoadBalancer": {
        "ipAddressType": "elbv2.IpAddressType",
        "loadBalancerType": "elbv2.LoadBalancerTypeEnum",
    },
    "aws:lb/targetGroup:TargetGroup": {
        "healthCheck.path": "elbv2.Path",
        "healthCheck.protocol": "elbv2.ProtocolEnum",
        "port": "elbv2.Port",
        "protocol": "elbv2.ProtocolEnum",
        "targetType": "elbv2.TargetTypeEnum",
    },
}


def value_failures(token: str, inputs: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Property path and reason for every known value that AWS's model of it, or its schema, rules out."""
    modelled = {path: _shapes()[name] for path, name in SHAPES.get(token, {}).items()}
    for path, shape in {**published_values(token), **modelled}.items():
        for value in values_at(inputs, path):
            if reason := _problem(shape, value):
                yield path, f'expected {path.removesuffix("[]")} {reason}, got "{value}"'


def shape_names() -> tuple[str, ...]:
    """The shapes that are looked up, sorted."""
    return tuple(sorted({name for paths in SHAPES.values() for name in paths.values()}))


@cache
def _shapes() -> Mapping[str, Mapping[str, object]]:
    shapes: Mapping[str, Mapping[str, object]] = json.loads(FILE.read_text(encoding="utf-8"))[
        "shapes"
    ]
    return shapes


def _problem(shape: Mapping[str, object], value: object) -> str | None:
    """What a shape wants instead of a value; None when the value will do."""
    words = shape.get("enum")
    if isinstance(words, list) and str(value) not in words:
        return f"to be one of {', '.join(words)}"
    least, most = shape.get("min"), shape.get("max")
    size = len(str(value)) if shape.get("type") == "string" else _number(value)
    unit = " characters" if shape.get("type") == "string" else ""
    if isinstance(least, int) and size is not None and size < least:
        return f"to be at least {least}{unit}"
    if isinstance(most, int) and size is not None and size > most:
        return f"to be at most {most}{unit}"
    pattern = shape.get("pattern")
    if isinstance(pattern, str) and not re.search(pattern, str(value)):
        return f"to match {pattern}"
    return None


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None
