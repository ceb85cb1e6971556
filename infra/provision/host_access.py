"""What hosts may do in the account: be reached through Session Manager, and read weights."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import iam

from infra.provision.naming import Tags, partition

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRead:
    """What hosts may read: a bucket by ARN (None: no bucket), under a prefix."""

    bucket_arn: pulumi.Output[str] | None
    prefix: str


class HostAccess(pulumi.ComponentResource):
    """IAM role and instance profile of hosts. `session_manager` is what SSH through SSM waits for."""

    def __init__(self, name: str, *, tags: Tags, region: str, read: WeightsRead) -> None:
        super().__init__("moe-infra:access:HostAccess", name)
        child = ResourceOptions(parent=self)
        role = iam.Role("hosts", assume_role_policy=_TRUST, tags=tags.of("hosts"), opts=child)
        self.session_manager = iam.RolePolicyAttachment(
            "session-manager",
            role=role.name,
            policy_arn=f"arn:{partition(region)}:iam::aws:policy/AmazonSSMManagedInstanceCore",
            opts=child,
        )
        if read.bucket_arn is not None:
            policy = read.bucket_arn.apply(lambda arn: read_policy(arn, read.prefix))
            iam.RolePolicy("read-weights", role=role.name, policy=policy, opts=child)
        profile = iam.InstanceProfile("hosts", role=role.name, tags=tags.of("hosts"), opts=child)
        self.profile_arn = profile.arn
        self.register_outputs({})


def read_policy(bucket_arn: str, prefix: str) -> str:
    """The policy document that lets a host list a bucket and read objects under a prefix."""
    statements = [
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:GetBucketLocation"],
            "Resource": bucket_arn,
        },
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket_arn}/{prefix}*"},
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
