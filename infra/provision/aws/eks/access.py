"""Who may do what around a cluster: roles of control plane, nodes and pods, with what each needs and no more."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import iam, kms

from infra.provision.aws.host_access import WeightsRead, read_policy
from infra.provision.aws.naming import partition
from infra.provision.naming import Tags

CONTROL_PLANE_POLICIES = ("AmazonEKSClusterPolicy",)
# The nodes' network plug-in has a role of its own, so that pods that reach a node's credentials get less.
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
PODS = "pods.eks.amazonaws.com"
KEY_ACTIONS = ("kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Everything that the roles of a cluster are made from."""

    tags: Tags
    region: str
    read: WeightsRead


class EksAccess(pulumi.ComponentResource):
    """The key of a cluster's secrets, and IAM roles.

    `ready` is what a cluster and its nodes wait for: a role without its policies is refused, or comes too late.
    `weights_arn` is None where no bucket is read.
    """

    def __init__(self, name: str, settings: AccessSettings) -> None:
        super().__init__("moe-infra:access:EksAccess", name)
        self._settings, self._child = settings, ResourceOptions(parent=self)
        tags = settings.tags
        key = kms.Key(
            "secrets",
            description=f"secrets of the cluster {tags.stack}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            tags=tags.of("secrets"),
            opts=self._child,
        )
        self.key_arn = key.arn
        control, made = self.role("control-plane", "eks.amazonaws.com", CONTROL_PLANE_POLICIES)
        key_use = iam.RolePolicy(
            "use-key", role=control.name, policy=key.arn.apply(key_policy), opts=self._child
        )
        nodes, attached = self.role("nodes", "ec2.amazonaws.com", NODE_POLICIES)
        self.control_plane_arn, self.node_arn = control.arn, nodes.arn
        self.ready: tuple[pulumi.Resource, ...] = (*made, key_use, *attached)
        self.weights_arn: pulumi.Output[str] | None = None
        if settings.read.bucket_arn is not None:
            self.weights_arn = self._weights(settings.read)
        self.register_outputs({})

    def role(
        self, name: str, service: str, policies: tuple[str, ...]
    ) -> tuple[iam.Role, tuple[pulumi.Resource, ...]]:
        """A role for a service of AWS, and its managed policies."""
        tags, region = self._settings.tags, self._settings.region
        role = iam.Role(
            name, assume_role_policy=trust(service), tags=tags.of(name), opts=self._child
        )
        attachments = tuple(
            iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=f"arn:{partition(region)}:iam::aws:policy/{policy}",
                opts=self._child,
            )
            for policy in policies
        )
        return role, attachments

    def _weights(self, read: WeightsRead) -> pulumi.Output[str]:
        """The role of pods with engines: they list the bucket and read below the prefix, and write nothing."""
        role, _ = self.role("weights", PODS, ())
        assert read.bucket_arn is not None  # noqa: S101 - the caller asked
        policy = read.bucket_arn.apply(lambda arn: read_policy(arn, read.prefix, read.key_arn))
        iam.RolePolicy("read-weights", role=role.name, policy=policy, opts=self._child)
        arn: pulumi.Output[str] = role.arn
        return arn


def trust(service: str) -> str:
    """The trust policy for a service of AWS; Pod Identity tags the sessions that it opens."""
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service == PODS else [])]
    statement = {"Effect": "Allow", "Action": actions, "Principal": {"Service": service}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def key_policy(key_arn: str) -> str:
    """What lets the control plane encrypt secrets with a key, and use no other."""
    statement = {"Effect": "Allow", "Action": list(KEY_ACTIONS), "Resource": key_arn}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
