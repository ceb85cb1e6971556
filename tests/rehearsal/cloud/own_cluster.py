"""A cluster in an emulated account: what it is made of, and its groups of nodes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from infra.rehearsal.cloud.cluster_kinds import CLUSTER
from infra.rehearsal.cloud.identity_kinds import ROLE
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET, VPC
from tests.rehearsal.cloud.conftest import BLOCK, interface

if TYPE_CHECKING:
    from infra.rehearsal.cloud.store import Resource
    from tests.rehearsal.cloud.conftest import Cloud

SERVICES = ("eks.amazonaws.com", "ec2.amazonaws.com", "pods.eks.amazonaws.com")


def trust(*services: str, actions: tuple[str, ...] = ("sts:AssumeRole", "sts:TagSession")) -> str:
    """The trust policy of a role that some services may take."""
    whom = {"Effect": "Allow", "Principal": {"Service": [*services]}, "Action": [*actions]}
    return json.dumps({"Version": "2012-10-17", "Statement": [whom]})


PARTS = base64.b64encode(b"MIME-Version: 1.0\n").decode()
ENTERED = {
    "capacityReservationSpecification": {
        "capacityReservationTarget": {"capacityReservationId": BLOCK}
    },
    "instanceMarketOptions": {"marketType": "capacity-block"},
}


class Eks:
    """What a cluster in zones 1 and 2 is made of, with a subnet for nodes in zone 2, where the account's block is."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.vpc = cloud.make(VPC, cidrBlock="10.0.0.0/16")
        self.subnets = [self.subnet(number, f"use1-az{number}") for number in (1, 2)]
        self.nodes = self.subnet(3, "use1-az2")
        self.role = cloud.make(ROLE, assumeRolePolicy=trust(*SERVICES))
        self.group = cloud.make(SECURITY_GROUP, vpcId=self.vpc.id)

    def subnet(self, number: int, zone: str, size: int = 24) -> Resource:
        block = f"10.0.{number}.0/{size}"
        return self.cloud.make(SUBNET, vpcId=self.vpc.id, cidrBlock=block, availabilityZoneId=zone)

    def cluster_inputs(self, **changed: Any) -> dict[str, Any]:
        network = {
            "subnetIds": [each.id for each in self.subnets],
            "endpointPrivateAccess": True,
            "endpointPublicAccess": False,
            **changed.pop("vpcConfig", {}),
        }
        whole = {"name": "mine", "version": "1.35", "roleArn": self.role.outputs["arn"]}
        return {**whole, "vpcConfig": network, **changed}

    def cluster(self) -> Resource:
        return self.cloud.make(CLUSTER, **self.cluster_inputs())

    def template(self, **changed: Any) -> Resource:
        rows = [{**interface(self.nodes, self.group), "subnetId": None}]
        inputs: dict[str, Any] = {
            "instanceType": "p5en.48xlarge",
            "networkInterfaces": rows,
            "userData": PARTS,
            **ENTERED,
        }
        return self.cloud.make(TEMPLATE, **{**inputs, **changed})

    def group_inputs(self, template: Resource, **changed: Any) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "clusterName": "mine",
            "nodeRoleArn": self.role.outputs["arn"],
            "subnetIds": [self.nodes.id],
            "amiType": "AL2023_x86_64_NVIDIA",
            "capacityType": "CAPACITY_BLOCK",
            "scalingConfig": {"desiredSize": 1, "minSize": 1, "maxSize": 1},
            "launchTemplate": {"id": template.id, "version": "1"},
        }
        return {**whole, **changed}
