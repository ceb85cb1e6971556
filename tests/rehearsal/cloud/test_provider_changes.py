"""What the real provider does on a change, played: replacements, outputs that a preview loses, what goes first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.machine_kinds import INSTANCE, TEMPLATE
from infra.rehearsal.cloud.network_kinds import INGRESS_RULE, SUBNET
from infra.rehearsal.cloud.package_types import resource_type
from infra.rehearsal.cloud.provider_changes import FILE, is_deleted_first, unknown_outputs
from infra.rehearsal.cloud.storage_kinds import LUSTRE
from infra.rehearsal.cloud.wire import UNKNOWN

STORED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["types"]
BALANCER = "aws:lb/loadBalancer:LoadBalancer"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
CLUSTER = "aws:eks/cluster:Cluster"


def test_every_emulated_type_is_described_with_its_source() -> None:
    assert set(STORED) == set(operations.KINDS)
    for token, row in STORED.items():
        assert row["file"].startswith(("internal/service/", "mmv1/")), token
        assert row["commit"] or row["stored_text"], token


@pytest.mark.parametrize("token", operations.KINDS)
def test_what_replaces_and_what_becomes_unknown_are_properties_of_the_package(token: str) -> None:
    declared, row = resource_type(token), STORED[token]
    tops = {path.partition(".")[0].removesuffix("[]") for path in row["replaces"]}
    assert tops <= set(declared.inputs)
    assert {each["output"].partition(".")[0] for each in row["unknown"]} <= set(declared.outputs)


@pytest.mark.parametrize(
    ("token", "settled", "free"),
    [
        (SUBNET, "availabilityZoneId", "tags"),
        (TEMPLATE, "name", "networkInterfaces"),
        (INGRESS_RULE, "securityGroupId", "description"),
        (LUSTRE, "efaEnabled", "tags"),
        (LUSTRE, "fileSystemTypeVersion", "tags"),
    ],
)
def test_a_change_replaces_or_does_not(token: str, settled: str, free: str) -> None:
    old = {settled: "a", free: "a"}
    assert operations.changes(token, old, {settled: "b", free: "a"}) == ([settled], [settled])
    assert operations.changes(token, old, {settled: "a", free: "b"}) == ([free], [])


@pytest.mark.parametrize(
    ("token", "old", "new", "is_replaced"),
    [
        (INSTANCE, {"launchTemplate": {"id": "lt-1", "version": "1"}},
         {"launchTemplate": {"id": "lt-1", "version": UNKNOWN}}, True),
        (NODE_GROUP, {"launchTemplate": {"id": "lt-1", "version": "1"}},
         {"launchTemplate": {"id": "lt-1", "version": "2"}}, False),
        (NODE_GROUP, {"launchTemplate": {"id": "lt-1", "version": "1"}},
         {"launchTemplate": {"id": "lt-2", "version": "1"}}, True),
        (LUSTRE, {"storageCapacity": 4800}, {"storageCapacity": 9600}, False),
        (LUSTRE, {"storageCapacity": 9600}, {"storageCapacity": 4800}, True),
        (BALANCER, {"loadBalancerType": "network", "subnets": ["a"]},
         {"loadBalancerType": "network", "subnets": ["a", "b"]}, False),
        (BALANCER, {"loadBalancerType": "network", "subnets": ["a"]},
         {"loadBalancerType": "network", "subnets": ["b"]}, True),
        (BALANCER, {"loadBalancerType": "application", "subnets": ["a"]},
         {"loadBalancerType": "application", "subnets": ["b"]}, False),
        (INGRESS_RULE, {"cidrIpv4": "10.0.0.0/8"}, {"cidrIpv4": "10.1.0.0/16"}, False),
        (INGRESS_RULE, {"cidrIpv4": "10.0.0.0/8"}, {"referencedSecurityGroupId": "sg-1"}, True),
        (CLUSTER, {"encryptionConfig": {"a": 1}}, {"encryptionConfig": {"a": 2}}, False),
        (CLUSTER, {"encryptionConfig": {"a": 1}}, {}, True),
    ],
)  # fmt: skip
def test_a_condition_replaces_where_it_holds(
    token: str,
    old: dict[str, object],
    new: dict[str, object],
    is_replaced: bool,
) -> None:
    changed, replaced = operations.changes(token, old, new)
    assert changed
    assert bool(replaced) == is_replaced


def test_a_preview_loses_what_a_change_unsettles() -> None:
    old = {"keyName": "a", "updateDefaultVersion": True, "tags": {}}
    lost = ["defaultVersion", "latestVersion"]
    assert unknown_outputs(TEMPLATE, old, {**old, "keyName": "b"}) == lost
    assert unknown_outputs(TEMPLATE, old, {**old, "tags": {"owner": "me"}}) == lost
    assert unknown_outputs(TEMPLATE, old, {**old, "description": "b"}) == []
    assert unknown_outputs(TEMPLATE, old, old) == []


def test_what_cannot_be_there_twice_goes_first() -> None:
    assert is_deleted_first("aws:efs/mountTarget:MountTarget", {}, "")
    assert is_deleted_first(CLUSTER, {"name": "mine"}, "cluster-1234567")
    assert not is_deleted_first(CLUSTER, {"name": "cluster-1234567"}, "cluster-1234567")
    assert not is_deleted_first("aws:ec2/natGateway:NatGateway", {}, "")
