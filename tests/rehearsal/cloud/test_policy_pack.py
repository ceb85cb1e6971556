"""The policy pack run by the real command line, over the project's own program and over one that breaks every rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.provision.policy.rules import ALL_RULES, ONE_RULES, TAG_RULE
from tests.rehearsal.cloud.command import Pulumi

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.cloud.scratch_project import ScratchProject

pytestmark = pytest.mark.pulumi
PACK = "infra/provision/policy"
EVERY_RULE = {rule.name for rule in ONE_RULES} | {rule.name for rule in ALL_RULES} | {TAG_RULE}
VIOLATIONS = """
import pulumi

def aws(token, name, **properties):
    return pulumi.CustomResource(f"aws:{token}", name, properties)

vpc = aws("ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16")
subnet = aws("ec2/subnet:Subnet", "subnet", vpcId=vpc.id, cidrBlock="10.0.0.0/24",
             availabilityZoneId="use1-az1", mapPublicIpOnLaunch=True)
group = aws("ec2/securityGroup:SecurityGroup", "group", vpcId=vpc.id)
aws("vpc/securityGroupIngressRule:SecurityGroupIngressRule", "world", securityGroupId=group.id,
    cidrIpv4="0.0.0.0/0", ipProtocol="tcp", fromPort=22, toPort=22)
aws("s3/bucket:Bucket", "weights")
card = {"subnetId": subnet.id, "securityGroups": [group.id], "interfaceType": "efa"}
aws("ec2/launchTemplate:LaunchTemplate", "hosts", instanceType="p6e-gb200.36xlarge",
    networkInterfaces=[{**card, "networkCardIndex": 0}, {**card, "networkCardIndex": 1}])
"""


@pytest.mark.slow  # two previews by the real engine, each with the pack's server beside it
def test_the_pack_blocks_each_violation_and_lets_our_own_program_through(
    make_project: Callable[..., ScratchProject], tmp_path: Path
) -> None:
    project = make_project()
    pulumi = Pulumi(project.folder, project.environment)
    assert pulumi("stack", "init").returncode == 0
    passed = pulumi("preview", "--policy-pack", PACK)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "decode-3" in passed.stdout

    (project.folder / "infra" / "__main__.py").write_text(VIOLATIONS)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({TAG_RULE: {"tags": ["owner"]}}))
    blocked = pulumi("preview", "--policy-pack", PACK, "--policy-pack-config", str(config))
    assert blocked.returncode != 0
    found = set(re.findall(r"\[mandatory\]\s+(\S+)", blocked.stdout))
    assert found == EVERY_RULE, blocked.stdout
    assert "owner" in blocked.stdout
    assert "Traceback" not in blocked.stdout + blocked.stderr
