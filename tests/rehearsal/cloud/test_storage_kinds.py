from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal.cloud.network_kinds import EGRESS_RULE, INGRESS_RULE, ZONE_GROUP
from infra.rehearsal.cloud.storage_kinds import (
    ACCESS_BLOCK,
    ASSOCIATION,
    BUCKET,
    BUCKET_ENCRYPTION,
    BUCKET_LIFECYCLE,
    BUCKET_POLICY,
    BUCKET_VERSIONING,
    ELASTIC,
    ELASTIC_POLICY,
    LUSTRE,
)
from infra.rehearsal.cloud.store import OwnKey
from infra.rehearsal.cloud.value_rules import value_failures

if TYPE_CHECKING:
    from tests.rehearsal.cloud.conftest import Cloud

SIZE = {"deploymentType": "PERSISTENT_2", "storageCapacity": 4800, "perUnitStorageThroughput": 1000}


def test_bucket_names_are_checked_and_taken_once(cloud: Cloud) -> None:
    cloud.make(BUCKET, bucket="my-weights")
    assert "BucketAlreadyOwnedByYou" in cloud.refusal(BUCKET, bucket="my-weights")
    assert "BucketAlreadyOwnedByYou" in cloud.refusal(BUCKET, bucket="their-weights")
    assert "InvalidBucketName" in cloud.refusal(BUCKET, bucket="ab")
    ((path, _),) = value_failures(BUCKET, {"bucket": "My_Weights"})
    assert path == "bucket"
    assert "NoSuchBucket" in cloud.refusal(ACCESS_BLOCK, bucket="nobody-s")


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("{", "The policy is not JSON"),
        ('{"Statement": {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}}', "field Principal"),
        ('{"Statement": {"Effect": "Deny", "Action": "s3:*", "Principal": "*"}}', "field Resource"),
    ],
)
def test_a_policy_of_what_is_kept_says_who_and_of_what(
    cloud: Cloud, policy: str, says: str
) -> None:
    bucket, system = cloud.make(BUCKET, bucket="my-weights"), cloud.make(ELASTIC)
    for token, of in (
        (BUCKET_POLICY, {"bucket": bucket.id}),
        (ELASTIC_POLICY, {"fileSystemId": system.id}),
    ):
        assert says in cloud.refusal(token, policy=policy, **of)
    whole = '{"Statement": {"Effect": "Deny", "Action": "s3:*", "Principal": "*", "Resource": "*"}}'
    assert cloud.make(BUCKET_POLICY, bucket=bucket.id, policy=whole)
    assert "NoSuchBucket" in cloud.refusal(BUCKET_POLICY, bucket="nobody-s", policy=whole)


@pytest.mark.parametrize(
    "changed",
    [{"storageCapacity": 5000}, {"perUnitStorageThroughput": 300}, {"deploymentType": "SCRATCH_2"}],
)
def test_a_file_system_that_does_not_exist_is_refused(
    cloud: Cloud, changed: dict[str, object]
) -> None:
    subnet, group = cloud.network()
    inputs = {**SIZE, "subnetIds": subnet.id, "securityGroupIds": [group.id], **changed}
    assert "BadRequest" in cloud.refusal(LUSTRE, **inputs)


def test_efa_wants_metadata_and_a_group_that_talks_to_itself(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    inputs = {**SIZE, "subnetIds": subnet.id, "securityGroupIds": [group.id], "efaEnabled": True}
    assert "metadataConfiguration" in cloud.refusal(LUSTRE, **inputs)
    inputs["metadataConfiguration"] = {"mode": "AUTOMATIC"}
    assert "Insufficient security group permissions" in cloud.refusal(LUSTRE, **inputs)
    for token in (INGRESS_RULE, EGRESS_RULE):
        rule = {"securityGroupId": group.id, "referencedSecurityGroupId": group.id}
        cloud.make(token, **rule, ipProtocol="-1")
    system = cloud.make(LUSTRE, **inputs)
    path = {"fileSystemId": system.id, "fileSystemPath": "/weights"}
    cloud.make(ASSOCIATION, **path, dataRepositoryPath="s3://their-weights/kimi")
    again = cloud.refusal(ASSOCIATION, **path, dataRepositoryPath="s3://their-weights/kimi")
    assert "associated already" in again
    said = cloud.refusal(
        ASSOCIATION, fileSystemId=system.id, fileSystemPath="/x", dataRepositoryPath="s3://no"
    )
    assert "does not exist" in said


def test_the_local_zone_has_no_file_systems(cloud: Cloud) -> None:
    cloud.make(ZONE_GROUP, groupName="us-east-1-dfw-2", optInStatus="opted-in")
    subnet, _ = cloud.network(zone="use1-dfw2-az1")
    assert "not offered" in cloud.refusal(LUSTRE, **SIZE, subnetIds=subnet.id)


def test_servers_of_a_file_system_reach_each_other_on_the_port_of_lustre(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    inputs = {**SIZE, "subnetIds": subnet.id, "securityGroupIds": [group.id]}
    rule = {"securityGroupId": group.id, "ipProtocol": "tcp"}
    cloud.make(INGRESS_RULE, **rule, cidrIpv4="10.0.0.0/24", fromPort=443, toPort=443)
    assert "port 988" in cloud.refusal(LUSTRE, **inputs)
    own = {**rule, "referencedSecurityGroupId": group.id}
    cloud.make(INGRESS_RULE, **own, fromPort=988, toPort=988)
    assert cloud.make(LUSTRE, **inputs)


def test_versions_are_kept_by_a_word_that_s3_knows(cloud: Cloud) -> None:
    bucket = cloud.make(BUCKET, bucket="mine").id
    said = cloud.refusal(
        BUCKET_VERSIONING, bucket=bucket, versioningConfiguration={"status": "enabled"}
    )
    assert "MalformedXML" in said
    cloud.make(BUCKET_VERSIONING, bucket=bucket, versioningConfiguration={"status": "Enabled"})


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ({"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "arn:aws:kms:nobody-s"}, None),
        ({"sseAlgorithm": "kms"}, "MalformedXML"),
        ({"sseAlgorithm": "AES256", "kmsMasterKeyId": "mine"}, "InvalidArgument"),
    ],
)
def test_a_bucket_takes_a_key_with_the_algorithm_of_kms_alone(
    cloud: Cloud, chosen: dict[str, str], code: str | None
) -> None:
    bucket = cloud.make(BUCKET, bucket="mine").id
    rules = [{"applyServerSideEncryptionByDefault": chosen}]
    if code is None:
        cloud.make(BUCKET_ENCRYPTION, bucket=bucket, rules=rules)
    else:
        assert code in cloud.refusal(BUCKET_ENCRYPTION, bucket=bucket, rules=rules)


def test_a_file_system_wants_a_key_that_is_there(cloud: Cloud) -> None:
    arn = "arn:aws:kms:us-east-1:000000000000:key/01234567-89ab-cdef-0123-456789abcdef"
    assert "does not exist" in cloud.refusal(ELASTIC, encrypted=True, kmsKeyId=arn)
    cloud.store.account = replace(cloud.store.account, keys={arn: OwnKey()})
    assert cloud.make(ELASTIC, encrypted=True, kmsKeyId=arn)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"status": "Enabled"}, "At least one action"),
        ({"status": "on", "expiration": {"days": 1}}, "MalformedXML"),
    ],
)
def test_a_lifecycle_does_something(cloud: Cloud, rule: dict[str, object], code: str) -> None:
    bucket = cloud.make(BUCKET, bucket="mine").id
    said = cloud.refusal(BUCKET_LIFECYCLE, bucket=bucket, rules=[{"id": "one", **rule}])
    assert code in said
    right = {"id": "one", "status": "Enabled", "expiration": {"days": 1}}
    cloud.make(BUCKET_LIFECYCLE, bucket=bucket, rules=[right])
