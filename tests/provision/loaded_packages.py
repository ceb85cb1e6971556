"""Loads pulumi-aws, pulumi-gcp and pulumi-kubernetes as far as any stack does, once and before tests are read.

They warn of classes of their own that are deprecated, which would fail whichever test comes first.
"""

from __future__ import annotations

import warnings

import pulumi_aws as aws
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for module in (
        *(aws.cloudcontrol, aws.ec2, aws.efs, aws.eks, aws.fsx, aws.iam, aws.kms, aws.lb),
        *(aws.s3, aws.servicequotas, aws.ssm, aws.vpc),
        gcp.compute,
        *(kubernetes.apps.v1, kubernetes.core.v1, kubernetes.helm.v3),
        *(kubernetes.policy.v1, kubernetes.rbac.v1),
    ):
        hasattr(module, "loads_with_its_first_attribute")
