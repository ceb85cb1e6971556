"""What an operator gets wrong about a cluster on EKS, typed at the real command line: one message, nothing made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.rehearsal.cloud.scratch_project import RESERVATION, ScratchProject
from tests.rehearsal.cloud.command import EKS_STACK
from tests.rehearsal.cloud.refusing import refusal, reserve, started

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several previews by the real engine
]
Make = Callable[..., ScratchProject]


def test_what_is_wrong_in_the_configuration_is_told_at_once(
    make_project: Make, tmp_path: Path
) -> None:
    spec_file = tmp_path / "mine.yaml"
    weights = {"path": "/models", "storage": "fsx-lustre"}
    spec_file.write_text(yaml.safe_dump({"extends": EKS_STACK, "weights": weights}))
    wrong = {
        "api_from_cidr": ("10.0.0.0/8", "could not reach the cluster", "198.51.100.0/24"),
        "cluster_admins": ("", "Not set: the IAM roles", "arn:aws:iam::123456789012:role/platform"),
        "reservation_id": ("block-7", "block-7 is not the capacity", "cr-0123456789abcdef0"),
        "zone_id": ("us-east-2a", "us-east-2a is not the zone id", "use1-az1"),
        "namespace": ("kube-system", "kube-system is the cluster's own", "serving"),
        "fsx_capacity_gib": ("5000", "5000 GiB", "7200"),
        "kubernetes_version": ("1.32", "1.33 is the least", "1.35"),
    }
    project = make_project("mine", spec_file)
    config = {f"moe-infra:{key}": value for key, (value, _, _) in wrong.items()}
    told = refusal(started(project), project.cloud, config)
    for key, (_, what, example) in wrong.items():
        assert what in told, key
        assert f"pulumi config set {key} {example} --stack mine" in told


def test_what_is_wrong_with_a_reservation_is_told_before_the_cluster_is_made(
    make_project: Make,
) -> None:
    project = make_project(EKS_STACK)
    pulumi = started(project)
    key = "moe-infra:reservation_id"
    fix = f"pulumi config set reservation_id cr-0123456789abcdef0 --stack {EKS_STACK}"
    told = refusal(pulumi, project.cloud, {key: ""})
    assert "Not set: the capacity reservation" in told
    assert fix in told
    told = refusal(pulumi, project.cloud, {key: "cr-00000000000000001"})
    assert "There is no capacity-block reservation cr-00000000000000001" in told
    assert fix in told
    reserve(project, instance_type="p5en.48xlarge", zone_id="use2-az2", num_instances=0)
    told = refusal(pulumi, project.cloud, {key: RESERVATION})
    assert f"holds p5en.48xlarge; {EKS_STACK} needs p6-b200.48xlarge" in told
    assert f"holds 0 machines; {EKS_STACK} needs 1" in told
    assert "is in us-east-2b; zone use2-az1 is us-east-2a" in told

    begins = "2099-12-01T11:30:00Z"
    right = {"instance_type": "p6-b200.48xlarge", "zone_id": "use2-az1", "num_instances": 1}
    reserve(project, **right, state="scheduled", start=begins)
    launched = pulumi("up", "--yes", "--skip-preview")
    assert launched.returncode != 0
    assert f"begins at {begins}" in " ".join(launched.stdout.split())
    assert not (project.cloud / "resources").exists()


def test_machines_that_are_not_sold_and_networks_that_cannot_hold_nodes_and_pods(
    make_project: Make, tmp_path: Path
) -> None:
    """Eight of p6-b300 at their most: 17 addresses each for interfaces, and 48 for pods."""
    spec_file = tmp_path / "mine.yaml"
    fields = {
        "extends": EKS_STACK,
        "accelerator": "b300",
        "capacity": {"kind": "on-demand", "network_layout": "maximum"},
        "roles": {"unified": {"replicas": 8}},
        "router": {"name": "sglang-router"},
    }
    spec_file.write_text(yaml.safe_dump(fields))
    project = make_project("mine", spec_file)
    pulumi = started(project)
    told = refusal(pulumi, project.cloud, {"moe-infra:vpc_cidr": "10.0.0.0/22"})
    assert "10.0.0.0/22 leaves 507 addresses to hosts; they take 520" in told
    assert "pulumi config set vpc_cidr 10.64.0.0/16 --stack mine" in told
    spec_file.write_text(yaml.safe_dump({**fields, "capacity": {"kind": "ultraserver"}}))
    told = refusal(pulumi, project.cloud, {})
    assert "p6-b300.48xlarge is not sold as ultraserver. Use on-demand or odcr or" in told
