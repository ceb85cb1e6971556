"""The policy pack run by the real command line: over the project's own program, and over two that break the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.provision.policy.rules import ALL_RULES, ONE_RULES, TAG_RULE
from tests.rehearsal.cloud.command import Pulumi

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.cloud.scratch_project import ScratchProject

pytestmark = pytest.mark.pulumi
PACK = ("--policy-pack", "infra/provision/policy")
OF_ONE = {rule.name for rule in ONE_RULES} | {TAG_RULE}
OF_ALL = {rule.name for rule in ALL_RULES}
SHARED = """
import pulumi

def aws(token, name, **properties):
    return pulumi.CustomResource(f"aws:{token}", name, properties)

TAGS = {"Name": "mine", "moe-infra:stack": "mine", "owner": "me"}
"""
BREAKS_EACH = """
vpc = aws("ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16")
subnet = aws("ec2/subnet:Subnet", "subnet", vpcId=vpc.id, cidrBlock="10.0.0.0/24",
             availabilityZoneId="use1-az1", mapPublicIpOnLaunch=True)
group = aws("ec2/securityGroup:SecurityGroup", "group", vpcId=vpc.id)
aws("vpc/securityGroupIngressRule:SecurityGroupIngressRule", "world", securityGroupId=group.id,
    cidrIpv4="0.0.0.0/0", ipProtocol="tcp", fromPort=22, toPort=22)
aws("s3/bucket:Bucket", "weights")
aws("eks/cluster:Cluster", "cluster", roleArn="arn:aws:iam::000000000000:role/mine", tags=TAGS,
    vpcConfig={"subnetIds": [subnet.id], "publicAccessCidrs": ["198.51.100.0/24"]})
role = aws("iam/role:Role", "hosts", tags=TAGS, assumeRolePolicy='{"Statement": {"Effect": "Allow", '
           '"Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}}')
aws("iam/rolePolicy:RolePolicy", "wide", role=role.id,
    policy='{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}')
template = aws("ec2/launchTemplate:LaunchTemplate", "hosts", instanceType="p6e-gb200.36xlarge",
    networkInterfaces=[{"subnetId": subnet.id, "securityGroups": [group.id]}])
aws("ec2/instance:Instance", "decode-0", tags=TAGS, launchTemplate={"id": template.id, "version": "1"})
"""
BREAKS_TOGETHER = """
vpc = aws("ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16", tags=TAGS)
subnet = aws("ec2/subnet:Subnet", "subnet", vpcId=vpc.id, cidrBlock="10.0.0.0/24",
             availabilityZoneId="use1-az1", tags=TAGS)
group = aws("ec2/securityGroup:SecurityGroup", "group", vpcId=vpc.id, tags=TAGS)
pulumi.CustomResource("aws:s3/bucket:Bucket", "weights", {"tags": TAGS}, pulumi.ResourceOptions(protect=True))
card = {"subnetId": subnet.id, "securityGroups": [group.id]}
aws("eks/nodeGroup:NodeGroup", "nodes", tags=TAGS, clusterName="mine", capacityType="CAPACITY_BLOCK",
    nodeRoleArn="arn:aws:iam::000000000000:role/mine", subnetIds=[subnet.id],
    scalingConfig={"desiredSize": 1, "minSize": 1, "maxSize": 1})
aws("ec2/launchTemplate:LaunchTemplate", "hosts", instanceType="p5en.48xlarge", tags=TAGS,
    metadataOptions={"httpTokens": "required"},
    blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}],
    networkInterfaces=[{**card, "interfaceType": "interface"},
                       {**card, "interfaceType": "efa-only", "networkCardIndex": 1}])
"""


def violated(pulumi: Pulumi, program: str, *words: str) -> set[str]:
    """The rules that a preview of a program names; it is refused."""
    (pulumi.folder / "infra" / "__main__.py").write_text(SHARED + program)
    done = pulumi("preview", *PACK, *words)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "[mandatory]" in done.stdout, done.stdout
    return {name for name in OF_ONE | OF_ALL if f" {name} " in done.stdout}


@pytest.mark.slow  # four previews by the real engine, each with the pack's server beside it
def test_the_pack_blocks_each_violation_and_lets_our_own_program_through(
    make_project: Callable[..., ScratchProject], tmp_path: Path
) -> None:
    project = make_project()
    pulumi = Pulumi(project.folder, project.environment)
    assert pulumi("stack", "init").returncode == 0
    passed = pulumi("preview", *PACK)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "decode-3" in passed.stdout

    # a machine that is named loses its protection, and no rule minds
    assert pulumi("config", "set", "replace_machines", "decode-3").returncode == 0
    named = pulumi("preview", *PACK)
    assert named.returncode == 0, named.stdout + named.stderr
    assert pulumi("config", "rm", "replace_machines").returncode == 0

    assert violated(pulumi, BREAKS_EACH) >= OF_ONE
    config = tmp_path / "config.json"
    config.write_text(json.dumps({TAG_RULE: {"tags": ["owner"]}}))
    assert violated(pulumi, BREAKS_TOGETHER, "--policy-pack-config", str(config)) == OF_ALL
