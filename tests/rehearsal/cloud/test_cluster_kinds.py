"""What the emulated EKS refuses, and lets through."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from infra.rehearsal.cloud.cluster_kinds import (
    ACCESS_ENTRY,
    ACCESS_POLICY,
    ADDON,
    CLUSTER,
    NODE_GROUP,
    POD_IDENTITY,
)
from infra.rehearsal.cloud.encryption_keys import KEY
from infra.rehearsal.cloud.identity_kinds import PROFILE, ROLE
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP
from infra.rehearsal.cloud.operations import check, delete, update
from tests.rehearsal.cloud.conftest import interface
from tests.rehearsal.cloud.own_cluster import Eks, trust

if TYPE_CHECKING:
    from tests.rehearsal.cloud.conftest import Cloud


@pytest.fixture
def eks(cloud: Cloud) -> Eks:
    return Eks(cloud)


def test_a_cluster_has_an_endpoint_and_a_group_that_go_with_it(cloud: Cloud, eks: Eks) -> None:
    cluster = eks.cluster()
    reached = cluster.outputs["vpcConfig"]
    assert isinstance(reached, dict)
    group = str(reached["clusterSecurityGroupId"])
    assert cloud.store.get(SECURITY_GROUP, group) is not None
    assert str(cluster.outputs["endpoint"]).endswith(".us-east-1.eks.amazonaws.com")
    delete(cloud.store, cluster.id, cluster.urn)
    assert cloud.store.get(SECURITY_GROUP, group) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": "1.20"}, "unsupported Kubernetes version 1.20"),
        ({"vpcConfig": {"endpointPrivateAccess": False}}, "cannot be disabled at the same time"),
        ({"vpcConfig": {"publicAccessCidrs": ["198.51.100.0/24"]}}, "public access is disabled"),
        (
            {"encryptionConfig": {"provider": {"keyArn": "arn:none"}, "resources": ["secrets"]}},
            "keyArn in encryptionConfig",
        ),
    ],
)
def test_a_cluster_that_eks_refuses(
    cloud: Cloud, eks: Eks, changed: dict[str, Any], says: str
) -> None:
    assert says in cloud.refusal(CLUSTER, **eks.cluster_inputs(**changed))


def test_a_control_plane_wants_two_zones_that_take_one(cloud: Cloud, eks: Eks) -> None:
    one = {"subnetIds": [eks.subnets[1].id, eks.nodes.id]}
    assert "two different AZs" in cloud.refusal(CLUSTER, **eks.cluster_inputs(vpcConfig=one))
    other = {"subnetIds": [eks.subnets[0].id, eks.subnet(4, "use1-az3").id]}
    said = cloud.refusal(CLUSTER, **eks.cluster_inputs(vpcConfig=other))
    assert "use1-az3 does not support a control plane" in said


def test_a_secrets_key_of_the_account_is_taken(cloud: Cloud, eks: Eks) -> None:
    key = cloud.make(KEY, enableKeyRotation=True)
    used = {"provider": {"keyArn": key.outputs["arn"]}, "resources": ["secrets"]}
    assert cloud.make(CLUSTER, **eks.cluster_inputs(encryptionConfig=used)).id == "mine"


def test_a_node_group_enters_a_capacity_block(cloud: Cloud, eks: Eks) -> None:
    eks.cluster()
    group = cloud.make(NODE_GROUP, **eks.group_inputs(eks.template()))
    assert group.outputs["version"] == "1.35"


@pytest.mark.parametrize(
    ("template", "group", "says"),
    [
        ({"iamInstanceProfile": "PROFILE"}, {}, "should not specify an instance profile"),
        ({"networkInterfaces": "WITH SUBNET"}, {}, "should not specify subnets"),
        ({"vpcSecurityGroupIds": "GROUP"}, {}, "not to both"),
        ({"userData": base64.b64encode(b"#!/bin/sh\n").decode()}, {}, "MIME multipart"),
        ({"instanceMarketOptions": None}, {}, "contradict each other"),
        ({"placement": {"groupName": "x"}}, {}, "do not support placement groups"),
        ({"capacityReservationSpecification": None}, {}, "needs a capacity reservation target"),
        ({}, {"capacityType": "ON_DEMAND"}, "contradict each other"),
        ({}, {"scalingConfig": 2}, "It holds 1 instances"),
        ({"networkInterfaces": "EFA OF B300"}, {}, "Network card 0 of p6-b300.48xlarge does not"),
        ({}, {"amiType": "AL2023_ARM_64_NVIDIA"}, "does not start AL2023_ARM_64_NVIDIA"),
        ({}, {"version": "1.34"}, "the nodes would run 1.34"),
        ({}, {"clusterName": "other"}, "clusterName: 'other' does not exist"),
    ],
)
def test_a_node_group_that_eks_refuses(
    cloud: Cloud, eks: Eks, template: dict[str, Any], group: dict[str, Any], says: str
) -> None:
    eks.cluster()
    if "iamInstanceProfile" in template:
        profile = cloud.make(PROFILE, role=eks.role.id)
        template = {"iamInstanceProfile": {"arn": profile.outputs["arn"]}}
    if template.get("networkInterfaces") == "WITH SUBNET":
        template = {"networkInterfaces": [interface(eks.nodes, eks.group)]}
    if template.get("networkInterfaces") == "EFA OF B300":  # as eksctl and pulumi-eks lay them out
        first = {**interface(eks.nodes, eks.group, interfaceType="efa"), "subnetId": None}
        template = {"instanceType": "p6-b300.48xlarge", "networkInterfaces": [first]}
    if "vpcSecurityGroupIds" in template:
        template = {"vpcSecurityGroupIds": [eks.group.id]}
    if "placement" in template:
        template = {"placement": {"groupName": cloud.placement_group().id}}
    if group.get("scalingConfig") == 2:
        group = {"scalingConfig": {"desiredSize": 2, "minSize": 2, "maxSize": 2}}
    made = eks.template(**template)
    assert says in cloud.refusal(NODE_GROUP, **eks.group_inputs(made, **group))


@pytest.mark.parametrize(
    "changed",
    [
        {"launchTemplate": {"version": "2"}},
        {"releaseVersion": "1.35.0-20260301"},
        {"launchTemplate": {"version": "2"}, "scalingConfig": 0},  # the size comes after
    ],
)
def test_nodes_of_a_block_change_only_when_none_runs(
    cloud: Cloud, eks: Eks, changed: dict[str, Any]
) -> None:
    eks.cluster()
    made = eks.template()
    inputs = eks.group_inputs(made, releaseVersion="1.35.0-20260101")
    group = cloud.make(NODE_GROUP, **inputs)
    first = dict(group.inputs)
    newer = {**made.inputs, "userData": base64.b64encode(b"MIME-Version: 1.0\n\n").decode()}
    update(cloud.store, "us-east-1", made.id, made.urn, newer)
    other: dict[str, Any] = {**first, **changed}
    if "launchTemplate" in changed:
        other["launchTemplate"] = {"id": made.id, "version": "2"}
    none = {"desiredSize": 0, "minSize": 0, "maxSize": 1}
    if changed.get("scalingConfig") == 0:
        other["scalingConfig"] = none
    with pytest.raises(RefusedError, match="must be 0 for an upgrade"):
        update(cloud.store, "us-east-1", group.id, group.urn, other)
    update(cloud.store, "us-east-1", group.id, group.urn, {**first, "scalingConfig": none})
    assert update(cloud.store, "us-east-1", group.id, group.urn, other)


def test_nodes_stand_in_the_zone_of_their_block(cloud: Cloud, eks: Eks) -> None:
    eks.cluster()
    said = cloud.refusal(
        NODE_GROUP, **eks.group_inputs(eks.template(), subnetIds=[eks.subnets[0].id])
    )
    assert "It is in use1-az2, the subnet in use1-az1" in said


def test_words_that_eks_does_not_know_are_refused_by_its_schema(eks: Eks) -> None:
    eks.cluster()
    inputs = eks.group_inputs(eks.template(), capacityType="SPOTTY")
    ((path, reason),) = check(NODE_GROUP, "urn::x", inputs, {})
    assert (path, "CAPACITY_BLOCK" in reason) == ("capacityType", True)


def test_addons_that_want_nodes_wait_for_them(cloud: Cloud, eks: Eks) -> None:
    eks.cluster()
    assert cloud.make(ADDON, clusterName="mine", addonName="vpc-cni")
    said = cloud.refusal(ADDON, clusterName="mine", addonName="coredns")
    assert "has no node to run on" in said
    cloud.make(NODE_GROUP, **eks.group_inputs(eks.template()))
    assert cloud.make(ADDON, clusterName="mine", addonName="coredns")
    assert "is not supported" in cloud.refusal(ADDON, clusterName="mine", addonName="no-such")
    said = cloud.refusal(ADDON, clusterName="mine", addonName="kube-proxy", configurationValues="{")
    assert "is not JSON" in said


def test_what_a_cluster_has_already_is_refused_and_a_change_of_it_is_not(
    cloud: Cloud, eks: Eks
) -> None:
    eks.cluster()
    role = eks.role.outputs["arn"]
    own: dict[str, dict[str, Any]] = {
        NODE_GROUP: eks.group_inputs(eks.template(), nodeGroupName="nodes"),
        ADDON: {"clusterName": "mine", "addonName": "vpc-cni"},
        ACCESS_ENTRY: {"clusterName": "mine", "principalArn": "arn:aws:iam::000000000000:role/me"},
        POD_IDENTITY: {
            "clusterName": "mine",
            "namespace": "mine",
            "serviceAccount": "engines",
            "roleArn": role,
        },
    }
    for token, inputs in own.items():
        made = cloud.make(token, **inputs)
        assert "ResourceInUseException" in cloud.refusal(token, **inputs)
        changed = {**inputs, "tags": {"owner": "me"}}
        assert update(cloud.store, "us-east-1", made.id, made.urn, changed).id == made.id
    assert "ResourceInUseException" in cloud.refusal(CLUSTER, **eks.cluster_inputs())
    another = {**own[POD_IDENTITY], "serviceAccount": "router"}
    assert cloud.make(POD_IDENTITY, **another)


def test_an_administrator_is_entered_first(cloud: Cloud, eks: Eks) -> None:
    eks.cluster()
    arn = "arn:aws:iam::000000000000:role/me"
    right = {"clusterName": "mine", "principalArn": arn, "accessScope": {"type": "cluster"}}
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    assert "has no access entry" in cloud.refusal(ACCESS_POLICY, **right, policyArn=policy)
    assert "is invalid" in cloud.refusal(ACCESS_ENTRY, clusterName="mine", principalArn="me")
    cloud.make(ACCESS_ENTRY, clusterName="mine", principalArn=arn)
    assert cloud.make(ACCESS_POLICY, **right, policyArn=policy)


def test_pods_take_a_role_that_exists(cloud: Cloud, eks: Eks) -> None:
    eks.cluster()
    identity = {"clusterName": "mine", "namespace": "mine", "serviceAccount": "engines"}
    assert "does not exist" in cloud.refusal(POD_IDENTITY, **identity, roleArn="arn:none")
    made = cloud.make(POD_IDENTITY, **identity, roleArn=eks.role.outputs["arn"])
    assert made.outputs["associationId"]


def test_each_service_takes_a_role_that_trusts_it(cloud: Cloud, eks: Eks) -> None:
    def stranger(*services: str) -> object:
        policy = trust(*services, actions=("sts:AssumeRole",))
        return cloud.make(ROLE, assumeRolePolicy=policy).outputs["arn"]

    said = cloud.refusal(CLUSTER, **eks.cluster_inputs(roleArn=stranger("ec2.amazonaws.com")))
    assert "could not be assumed" in said
    eks.cluster()
    nodes = eks.group_inputs(eks.template(), nodeRoleArn=stranger("eks.amazonaws.com"))
    assert "[ec2.amazonaws.com] were not found" in cloud.refusal(NODE_GROUP, **nodes)
    identity = {"clusterName": "mine", "namespace": "mine", "serviceAccount": "engines"}
    # sessions of pods carry tags
    pods = stranger("pods.eks.amazonaws.com")
    assert "sts:TagSession" in cloud.refusal(POD_IDENTITY, **identity, roleArn=pods)
