"""What an operator has already: a stack of their own, a network, a load balancer."""

from __future__ import annotations

from pathlib import Path

import yaml

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.load_balancer_kinds import LOAD_BALANCER
from infra.rehearsal.cloud.machine_kinds import INSTANCE, TEMPLATE
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET, VPC, ZONE_GROUP
from infra.rehearsal.cloud.store import Resource, Store
from infra.rehearsal.cloud.world import IMAGES

REGION = "us-east-1"  # where a stack of the operator's own finds the first zone with its machines


def own_stack(tmp_path: Path, base: str, **fields: object) -> Path:
    """A project folder whose stack `mine` is another one with some fields changed."""
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True, exist_ok=True)
    document = {"extends": base, **fields}
    (folder / "stacks" / "mine.yaml").write_text(yaml.safe_dump(document))
    return folder


def make(store: Store, region: str, token: str, name: str, **inputs: object) -> Resource:
    """What somebody else's program has made in the account."""
    urn = f"urn:pulumi:theirs::theirs::{token}::{name}"
    values = dict(inputs)
    assert operations.check(token, urn, values, {}) == []
    return operations.create(store, region, urn, values)


def their_network(
    store: Store, *, region: str = REGION, zones: tuple[str, ...] = ("use1-az1",), size: int = 24
) -> list[Resource]:
    """A VPC of theirs with a subnet in each zone."""
    if any("dfw" in zone for zone in zones):
        group = {"groupName": "us-east-1-dfw-2", "optInStatus": "opted-in"}
        make(store, region, ZONE_GROUP, "theirs", **group)
    vpc = make(store, region, VPC, "theirs", cidrBlock="10.9.0.0/16")
    return [
        make(
            store,
            region,
            SUBNET,
            zone,
            vpcId=vpc.id,
            cidrBlock=f"10.9.{number}.0/{size}",
            availabilityZoneId=zone,
        )
        for number, zone in enumerate(zones)
    ]


def stand_in(store: Store, subnet: Resource, *, name: str, stack: str) -> Resource:
    """A machine in a subnet that bears the tag of a stack."""
    region = str(subnet.outputs["region"])
    group = make(store, region, SECURITY_GROUP, name, vpcId=subnet.inputs["vpcId"])
    card = {"subnetId": subnet.id, "securityGroups": [group.id]}
    image = next(name for name, architecture in IMAGES.items() if architecture == "x86_64")
    template = make(
        store,
        region,
        TEMPLATE,
        name,
        imageId=image,
        instanceType="p5en.48xlarge",
        networkInterfaces=[card],
    )
    launched = {"id": template.id, "version": "1"}
    tags = {"moe-infra:stack": stack}
    return make(store, region, INSTANCE, name, launchTemplate=launched, tags=tags)


def their_balancer(
    store: Store, subnets: list[Resource], *, has_group: bool = True, **inputs: object
) -> Resource:
    vpc = str(subnets[0].inputs["vpcId"])
    groups = [make(store, REGION, SECURITY_GROUP, "theirs", vpcId=vpc).id] if has_group else []
    wanted = {"internal": True, "loadBalancerType": "network", **inputs}
    ids = [subnet.id for subnet in subnets]
    return make(
        store, REGION, LOAD_BALANCER, "theirs", subnets=ids, securityGroups=groups, **wanted
    )
