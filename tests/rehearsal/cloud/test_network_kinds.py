from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.endpoint_kinds import ENDPOINT
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.network_kinds import (
    ADDRESS,
    ASSOCIATION,
    INGRESS_RULE,
    INTERNET_GATEWAY,
    NAT_GATEWAY,
    ROUTE,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
    ZONE_GROUP,
)

if TYPE_CHECKING:
    from tests.rehearsal.cloud.conftest import Cloud


def test_a_subnet_of_a_network_that_does_not_exist_is_refused(cloud: Cloud) -> None:
    said = cloud.refusal(
        SUBNET, vpcId="vpc-0", cidrBlock="10.0.0.0/24", availabilityZoneId="use1-az1"
    )
    assert "InvalidVpcID.NotFound" in said
    assert "vpc-0" in said


@pytest.mark.parametrize(
    ("block", "zone", "code"),
    [
        ("10.1.0.0/24", "use1-az1", "InvalidSubnet.Range"),
        ("10.0.0.0/30", "use1-az1", "InvalidSubnet.Range"),
        ("ten", "use1-az1", "InvalidSubnet.Range"),
        ("10.0.0.0/25", "use1-az1", "InvalidSubnet.Conflict"),
        ("10.0.1.0/24", "use2-az1", "InvalidParameterValue"),
        ("10.0.1.0/24", "use1-dfw2-az1", "not opted in"),
    ],
)
def test_a_subnet_that_cannot_be_is_refused(cloud: Cloud, block: str, zone: str, code: str) -> None:
    subnet, _ = cloud.network()
    vpc = str(subnet.inputs["vpcId"])
    assert code in cloud.refusal(SUBNET, vpcId=vpc, cidrBlock=block, availabilityZoneId=zone)


def test_a_local_zone_takes_subnets_once_it_is_opted_into(cloud: Cloud) -> None:
    cloud.make(ZONE_GROUP, groupName="us-east-1-dfw-2", optInStatus="opted-in")
    subnet, _ = cloud.network(zone="use1-dfw2-az1")
    assert subnet.outputs["availabilityZone"] == "us-east-1-dfw-2a"


def test_a_route_has_one_target_and_one_destination(cloud: Cloud) -> None:
    subnet, _ = cloud.network()
    vpc = str(subnet.inputs["vpcId"])
    table = cloud.make(ROUTE_TABLE, vpcId=vpc)
    gateway = cloud.make(INTERNET_GATEWAY, vpcId=vpc)
    inputs = {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0"}
    assert "exactly one target" in cloud.refusal(ROUTE, **inputs)
    cloud.make(ROUTE, **inputs, gatewayId=gateway.id)
    assert "RouteAlreadyExists" in cloud.refusal(ROUTE, **inputs, gatewayId=gateway.id)
    cloud.make(ASSOCIATION, routeTableId=table.id, subnetId=subnet.id)
    said = cloud.refusal(ASSOCIATION, routeTableId=table.id, subnetId=subnet.id)
    assert "Resource.AlreadyAssociated" in said


def test_a_nat_gateway_needs_a_way_to_the_internet(cloud: Cloud) -> None:
    subnet, _ = cloud.network()
    address = cloud.make(ADDRESS, domain="vpc")
    inputs = {"allocationId": address.id, "subnetId": subnet.id}
    assert "Gateway.NotAttached" in cloud.refusal(NAT_GATEWAY, **inputs)
    cloud.make(INTERNET_GATEWAY, vpcId=subnet.inputs["vpcId"])
    nat = cloud.make(NAT_GATEWAY, **inputs)
    assert "Resource.AlreadyAssociated" in cloud.refusal(NAT_GATEWAY, **inputs)
    # a gateway goes while routes lead to it, and its address is free for the next
    table = cloud.make(ROUTE_TABLE, vpcId=subnet.inputs["vpcId"])
    way = {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": nat.id}
    cloud.make(ROUTE, **way)
    operations.delete(cloud.store, nat.id, nat.urn)
    cloud.make(NAT_GATEWAY, **inputs)


def test_a_rule_has_one_source_and_stands_once(cloud: Cloud) -> None:
    _, group = cloud.network()
    inputs = {"securityGroupId": group.id, "ipProtocol": "-1"}
    assert "Exactly one of" in cloud.refusal(INGRESS_RULE, **inputs)
    cloud.make(INGRESS_RULE, **inputs, referencedSecurityGroupId=group.id)
    said = cloud.refusal(INGRESS_RULE, **inputs, referencedSecurityGroupId=group.id)
    assert "InvalidPermission.Duplicate" in said
    missing = cloud.refusal(INGRESS_RULE, **inputs, referencedSecurityGroupId="sg-0")
    assert "InvalidGroup.NotFound" in missing


@pytest.mark.parametrize(
    ("service", "kind", "code"),
    [
        ("com.amazonaws.us-east-1.smm", "Interface", "InvalidServiceName"),
        ("com.amazonaws.us-east-2.ssm", "Interface", "InvalidServiceName"),
        ("com.amazonaws.us-east-1.ssm", "Gateway", "InvalidServiceName"),
        ("com.amazonaws.us-east-1.ssm", "Interface", "needs subnetIds"),
    ],
)
def test_an_endpoint_that_is_not_offered_is_refused(
    cloud: Cloud, service: str, kind: str, code: str
) -> None:
    vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
    said = cloud.refusal(ENDPOINT, vpcId=vpc.id, serviceName=service, vpcEndpointType=kind)
    assert code in said


def test_what_is_in_use_cannot_be_deleted(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    vpc = cloud.store.get(VPC, str(subnet.inputs["vpcId"]))
    assert vpc is not None
    with pytest.raises(RefusedError, match="DependencyViolation"):
        operations.delete(cloud.store, vpc.id, vpc.urn)
    for each in (subnet, group, vpc):
        operations.delete(cloud.store, each.id, each.urn)
    operations.delete(cloud.store, vpc.id, vpc.urn)
    assert cloud.store.all() == []


def test_a_second_group_of_one_name_is_refused(cloud: Cloud) -> None:
    vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
    cloud.make(SECURITY_GROUP, vpcId=vpc.id, name="hosts")
    assert "InvalidGroup.Duplicate" in cloud.refusal(SECURITY_GROUP, vpcId=vpc.id, name="hosts")


def test_an_endpoint_takes_a_services_names_in_a_network_that_answers_names(cloud: Cloud) -> None:
    service = "com.amazonaws.us-east-1.ssm"
    wanted = {"serviceName": service, "vpcEndpointType": "Interface", "privateDnsEnabled": True}

    def inputs(**of_vpc: object) -> dict[str, object]:
        vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16", **of_vpc)
        zone = {"cidrBlock": "10.0.0.0/24", "availabilityZoneId": "use1-az1"}
        return {
            **wanted,
            "vpcId": vpc.id,
            "subnetIds": [cloud.make(SUBNET, vpcId=vpc.id, **zone).id],
        }

    for attributes in ({}, {"enableDnsHostnames": True, "enableDnsSupport": False}):
        assert "enableDnsHostnames" in cloud.refusal(ENDPOINT, **inputs(**attributes))
    own = inputs(enableDnsHostnames=True)
    cloud.make(ENDPOINT, **own)
    assert "conflicting DNS domain" in cloud.refusal(ENDPOINT, **own)
    cloud.make(ENDPOINT, **{**own, "privateDnsEnabled": False})


def test_an_endpoint_stands_once_in_a_zone(cloud: Cloud) -> None:
    subnet, _ = cloud.network()
    vpc = subnet.inputs["vpcId"]
    beside = cloud.make(SUBNET, vpcId=vpc, cidrBlock="10.0.1.0/24", availabilityZoneId="use1-az1")
    said = cloud.refusal(
        ENDPOINT,
        vpcId=vpc,
        serviceName="com.amazonaws.us-east-1.ssm",
        vpcEndpointType="Interface",
        subnetIds=[subnet.id, beside.id],
    )
    assert "DuplicateSubnetsInSameZone" in said


def test_what_belongs_together_is_of_one_network(cloud: Cloud) -> None:
    (subnet, group), (_, stranger) = cloud.network(), cloud.network()
    other = stranger.inputs["vpcId"]
    table = cloud.make(ROUTE_TABLE, vpcId=other)
    gateway = cloud.make(INTERNET_GATEWAY, vpcId=subnet.inputs["vpcId"])
    way = {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway.id}
    rule = {"securityGroupId": group.id, "referencedSecurityGroupId": stranger.id}
    for token, inputs in (
        (ROUTE, way),
        (ASSOCIATION, {"routeTableId": table.id, "subnetId": subnet.id}),
        (INGRESS_RULE, {**rule, "ipProtocol": "-1"}),
    ):
        assert "belong to different networks" in cloud.refusal(token, **inputs)


@pytest.mark.parametrize(
    "policy",
    ["{", '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*"}]}'],
)
def test_an_endpoint_takes_no_policy_that_is_none(cloud: Cloud, policy: str) -> None:
    vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
    wanted = {"vpcId": vpc.id, "serviceName": "com.amazonaws.us-east-1.s3"}
    assert "InvalidPolicyDocument" in cloud.refusal(ENDPOINT, **wanted, policy=policy)
    cloud.make(ENDPOINT, **wanted)
