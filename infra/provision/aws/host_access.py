"""What hosts may do in the account: be reached through Session Manager, and read weights."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import iam

from infra.provision.naming import Tags

_TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": "ec2.amazonaws.com"},
            }
        ],
    }
)

# What Session Manager asks of a host, and no parameter: AmazonSSMManagedInstanceCore reads all those of an account.
# (AWS Systems Manager User Guide, "Create a custom IAM role for Session Manager", checked 2026-11-26.)
_SESSIONS = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "ssm:UpdateInstanceInformation",
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                ],
                "Resource": "*",
            }
        ],
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRead:
    """What hosts may read: a bucket by ARN (None: no bucket), under a prefix, with a key (None: AWS's own)."""

    bucket_arn: pulumi.Output[str] | None
    prefix: str
    key_arn: str | None


class HostAccess(pulumi.ComponentResource):
    """IAM role and instance profile of hosts. `session_manager` is what SSH through SSM waits for."""

    def __init__(self, name: str, *, tags: Tags, read: WeightsRead) -> None:
        super().__init__("moe-infra:access:HostAccess", name)
        child = ResourceOptions(parent=self)
        role = iam.Role("hosts", assume_role_policy=_TRUST, tags=tags.of("hosts"), opts=child)
        self.session_manager = iam.RolePolicy(
            "session-manager", role=role.name, policy=_SESSIONS, opts=child
        )
        if read.bucket_arn is not None:
            policy = read.bucket_arn.apply(lambda arn: read_policy(arn, read.prefix, read.key_arn))
            iam.RolePolicy("read-weights", role=role.name, policy=policy, opts=child)
        profile = iam.InstanceProfile("hosts", role=role.name, tags=tags.of("hosts"), opts=child)
        self.profile_arn = profile.arn
        self.register_outputs({})


def read_policy(bucket_arn: str, prefix: str, key_arn: str | None) -> str:
    """The policy document that lets a host list and read objects under a prefix of a bucket.

    Objects that are encrypted with a key of the account are decrypted for those alone who may use it (S3 User Guide,
    "Using server-side encryption with AWS KMS keys"); through S3 and in no other way.
    """
    below = {"Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}}} if prefix else {}
    statements: list[dict[str, object]] = [
        {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": bucket_arn},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket_arn, **below},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket_arn}/{prefix}*"},
    ]
    if key_arn is not None:
        through = {"StringLike": {"kms:ViaService": "s3.*"}}
        statements.append(
            {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": key_arn, "Condition": through}
        )
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
