from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.load_balancer_kinds import (
    LISTENER,
    LOAD_BALANCER,
    TARGET,
    TARGET_GROUP,
)
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET, VPC, ZONE_GROUP
from infra.rehearsal.cloud.storage_kinds import ELASTIC, LUSTRE, MOUNT_TARGET

if TYPE_CHECKING:
    from infra.rehearsal.cloud.store import Resource
    from tests.rehearsal.cloud.conftest import Cloud


def balancer(cloud: Cloud, kind: str = "network") -> tuple[Resource, Resource]:
    """A load balancer over two zones, and the network that it is in."""
    vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
    subnets = [
        cloud.make(
            SUBNET,
            vpcId=vpc.id,
            cidrBlock=f"10.0.{number}.0/24",
            availabilityZoneId=f"use1-az{number}",
        ).id
        for number in (1, 2)
    ]
    group = cloud.make(SECURITY_GROUP, vpcId=vpc.id)
    inputs = {"loadBalancerType": kind, "subnets": subnets, "securityGroups": [group.id]}
    return cloud.make(LOAD_BALANCER, internal=True, **inputs), vpc


def forward(group: Resource) -> list[dict[str, str]]:
    return [{"type": "forward", "targetGroupArn": group.id}]


def test_a_port_is_listened_on_once_and_in_a_protocol_of_the_balancer(cloud: Cloud) -> None:
    made, vpc = balancer(cloud)
    group = cloud.make(TARGET_GROUP, vpcId=vpc.id, protocol="TCP", port=8000, targetType="ip")
    rest = {"loadBalancerArn": made.id, "defaultActions": forward(group)}
    cloud.make(LISTENER, **rest, port=8000, protocol="TCP", tcpIdleTimeoutSeconds=3600)
    again = cloud.refusal(LISTENER, **rest, port=8000, protocol="TCP")
    assert "DuplicateListener" in again
    assert "Protocol HTTP" in cloud.refusal(LISTENER, **rest, port=8001, protocol="HTTP")
    forever = {"port": 8002, "protocol": "TCP", "tcpIdleTimeoutSeconds": 7000}
    assert "60 to 6000" in cloud.refusal(LISTENER, **rest, **forever)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, None),
        ({"certificateArn": None}, "A certificate must be specified for TLS"),
        ({"certificateArn": "arn:aws:acm:us-east-1:000000000000:certificate/x"}, "NotFound"),
        ({"protocol": "TCP"}, "A certificate cannot be specified for TCP"),
        ({"tcpIdleTimeoutSeconds": 3600}, "TCP listeners of network load balancers"),
    ],
)
def test_a_listener_of_tls_has_a_certificate_of_the_account(
    cloud: Cloud, changed: dict[str, object], code: str | None
) -> None:
    arn = "arn:aws:acm:us-east-1:000000000000:certificate/mine"
    cloud.store.account = replace(cloud.store.account, certificates=(arn,))
    made, vpc = balancer(cloud)
    group = cloud.make(TARGET_GROUP, vpcId=vpc.id, protocol="TCP", port=8000, targetType="ip")
    inputs = {"loadBalancerArn": made.id, "defaultActions": forward(group), "port": 8000}
    inputs |= {"protocol": "TLS", "certificateArn": arn, **changed}
    given = {name: value for name, value in inputs.items() if value is not None}
    if code is None:
        cloud.make(LISTENER, **given)
    else:
        assert code in cloud.refusal(LISTENER, **given)


def test_targets_are_addresses_of_the_network(cloud: Cloud) -> None:
    _, vpc = balancer(cloud)
    group = cloud.make(TARGET_GROUP, vpcId=vpc.id, protocol="TCP", port=8000, targetType="ip")
    cloud.make(TARGET, targetGroupArn=group.id, targetId="10.0.1.7", port=8000)
    outside = cloud.refusal(TARGET, targetGroupArn=group.id, targetId="192.0.2.7", port=8000)
    assert "outside the network" in outside
    named = cloud.refusal(TARGET, targetGroupArn=group.id, targetId="i-0123", port=8000)
    assert "is not an address" in named


@pytest.mark.parametrize("name", ["internal-x", "a" * 33, "under_score", "-x"])
def test_names_are_short_and_plain(cloud: Cloud, name: str) -> None:
    vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
    said = cloud.refusal(TARGET_GROUP, name=name, vpcId=vpc.id, protocol="TCP", port=1)
    assert "1 to 32 letters" in said


def test_an_application_balancer_stands_in_two_zones_and_none_in_a_local_one(cloud: Cloud) -> None:
    subnet, _ = cloud.network()
    alone = {"loadBalancerType": "application", "subnets": [subnet.id]}
    assert "At least 2 subnets" in cloud.refusal(LOAD_BALANCER, **alone)
    cloud.make(ZONE_GROUP, groupName="us-east-1-dfw-2", optInStatus="opted-in")
    local, _ = cloud.network(zone="use1-dfw2-az1")
    said = cloud.refusal(LOAD_BALANCER, loadBalancerType="network", subnets=[local.id])
    assert "not offered in use1-dfw2-az1" in said


def test_an_elastic_file_system_has_one_target_in_a_zone(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    system = cloud.make(ELASTIC, encrypted=True, throughputMode="elastic")
    rest = {"fileSystemId": system.id, "subnetId": subnet.id, "securityGroups": [group.id]}
    target = cloud.make(MOUNT_TARGET, **rest)
    assert str(target.outputs["dnsName"]).startswith(f"{system.id}.efs.us-east-1")
    assert "MountTargetConflict" in cloud.refusal(MOUNT_TARGET, **rest)
    cloud.make(ZONE_GROUP, groupName="us-east-1-dfw-2", optInStatus="opted-in")
    local, _ = cloud.network(zone="use1-dfw2-az1")
    said = cloud.refusal(MOUNT_TARGET, fileSystemId=system.id, subnetId=local.id)
    assert "not offered" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"storageCapacity": 4800}, "can only be increased"),
        ({"perUnitStorageThroughput": 500}, "cannot be changed"),
        ({"storageCapacity": 19200}, None),
    ],
)
def test_an_efa_file_system_grows_and_keeps_its_tier(
    cloud: Cloud, changed: dict[str, int], said: str | None
) -> None:
    subnet, group = cloud.network()
    cloud.talking(group)
    inputs: dict[str, object] = {
        "deploymentType": "PERSISTENT_2",
        "storageCapacity": 9600,
        "perUnitStorageThroughput": 1000,
        "efaEnabled": True,
        "metadataConfiguration": {"mode": "AUTOMATIC"},
        "subnetIds": subnet.id,
        "securityGroupIds": [group.id],
    }
    system = cloud.make(LUSTRE, **inputs)
    arguments = (cloud.store, "us-east-1", system.id, system.urn, {**inputs, **changed})
    if said is None:
        assert operations.update(*arguments).id == system.id
        return
    with pytest.raises(RefusedError, match=said):
        operations.update(*arguments)
