"""What AWS calls things of a stack, and the commands that give a cluster's nodes back."""

from __future__ import annotations

from infra.provision.naming import POOL


def give_back_nodes(stack: str) -> str:
    """The commands that give a cluster's nodes on reserved capacity back, and the cluster with them.

    EKS deletes no cluster that is protected, and AWS's provider lifts nothing by itself (cluster.go, Delete).
    """
    region = f'"$(pulumi config get aws:region --stack {stack})"'
    group = "moe-infra:nodes:AcceleratorGroup$aws:eks/nodeGroup:NodeGroup"
    urn = f"urn:pulumi:{stack}::moe-infra::{group}::{POOL}"
    return (
        f"aws eks update-cluster-config --name {stack} --region {region} --no-deletion-protection; "
        f"pulumi state unprotect '{urn}' --yes --stack {stack}; "
        f"pulumi destroy --exclude-protected --stack {stack}"
    )


def partition(region: str) -> str:
    """The ARN partition of a region."""
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
