"""A cluster on EKS and what runs in it, by the real command line: emulated cloud, emulated API of its clusters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infra.rehearsal.cloud.deployment import bring_up
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.rehearsal.cloud.store import read_account, write_account
from tests.rehearsal.cloud.command import Pulumi

pytestmark = pytest.mark.pulumi
STACK = "eks-b200-tp8"


def say_nothing(_: str) -> None:
    pass


def made(cloud: Path) -> list[str]:
    """Kinds of the resources and objects that stand, sorted, one for each."""
    return sorted(path.parent.name for path in (cloud / "resources").glob("*/*.json"))


@pytest.mark.slow  # several updates by the real engine
def test_the_life_of_a_cluster_and_its_workload(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(STACK)
    pulumi = Pulumi(project.folder, project.environment, STACK)
    assert pulumi("stack", "init").returncode == 0
    previewed = pulumi("preview", "--policy-pack", "infra/provision/policy")
    assert previewed.returncode == 0, previewed.stdout + previewed.stderr
    assert "aws:eks:Cluster" in previewed.stdout
    assert "LeaderWorkerSet" in previewed.stdout
    assert not (project.cloud / "resources").exists()

    inventory = bring_up(project, say_nothing)["inventory"]
    assert isinstance(inventory, dict)
    assert inventory["cluster"]["kubernetes_version"] == "1.35"
    assert {"Cluster", "NodeGroup", "Release", "LeaderWorkerSet"} <= set(made(project.cloud))
    # what the cloud takes by default for an add-on changes none that runs
    account = read_account(project.cloud)
    write_account(project.cloud, replace(account, addons={"vpc-cni": "v1.21.0-eksbuild.1"}))
    assert set(pulumi.changes("up")) == {"same"}
    assert set(pulumi.changes("refresh")) == {"same"}

    # an object that somebody deleted comes back
    (path,) = (project.cloud / "resources" / "LeaderWorkerSet").glob("*.json")
    path.unlink()
    assert pulumi.changes("refresh")["delete"] == 1
    assert pulumi.changes("up")["create"] == 1

    destroyed = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr
    assert made(project.cloud) == ["Bucket", "BucketPublicAccessBlock"]


@pytest.mark.slow  # an update by the real engine
def test_no_secret_is_in_the_kubeconfig_of_the_state(
    make_project: Callable[..., ScratchProject],
) -> None:
    """The provider's kubeconfig asks for a token; none is kept."""
    project = make_project(STACK)
    bring_up(project, say_nothing)
    state = Pulumi(project.folder, project.environment, STACK)("stack", "export")
    resources = json.loads(state.stdout)["deployment"]["resources"]
    (provider,) = (each for each in resources if each["type"] == "pulumi:providers:kubernetes")
    kubeconfig = json.loads(provider["inputs"]["kubeconfig"])
    assert set(kubeconfig["users"][0]["user"]) == {"exec"}


@pytest.mark.slow  # an update by the real engine
def test_wrong_facts_of_a_cluster_are_one_message_and_nothing_is_made(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(STACK, api_from_cidr="10.0.0.0/8", cluster_admins="", zone_id="use2-az9")
    pulumi = Pulumi(project.folder, project.environment, STACK)
    assert pulumi("stack", "init").returncode == 0
    done = pulumi("up", "--yes", "--skip-preview")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "pulumi config set api_from_cidr 198.51.100.0/24 --stack eks-b200-tp8" in said
    assert "pulumi config set cluster_admins" in said
    assert "Traceback" not in said
    assert not (project.cloud / "resources").exists()
