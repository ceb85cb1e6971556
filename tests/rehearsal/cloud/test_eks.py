"""A cluster on EKS and what runs in it, by the real command line: emulated cloud, emulated API of its clusters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.provision.aws.naming import give_back_nodes
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.rehearsal.cloud.store import read_account, write_account
from infra.rehearsal.cloud.world import NODE_IMAGES
from tests.rehearsal.cloud.command import (
    BUCKET_KINDS,
    Pulumi,
    edit_stack,
    kinds_left,
    lift_deletion_protection,
    resources,
    waits,
)
from tests.rehearsal.cloud.spying import Spy

pytestmark = pytest.mark.pulumi
STACK = "eks-b200-tp8"


class Operator:
    """Somebody with a cluster of their own, and with secrets."""

    def __init__(self, project: ScratchProject, tmp_path: Path) -> None:
        self.project = project
        self.spy = Spy(
            {
                "api_key": "sk-oneThatClientsHave",
                "another api_key": "sk-oneThatTheyGetLater",
                "hf_token": "hf_notForAnybodysEyes",
                "of the account": "wJalrXUtnFEMI/bPxRfiCYEXAMPLEKEY",
            }
        )
        token = tmp_path / "token"
        token.write_text(self.spy.values["hf_token"])
        own = {"api_key": {"env": "SERVING_KEY"}, "hf_token": {"file": str(token)}}
        edit_stack(project.folder, STACK, secrets=own)
        self.said: list[str] = []
        self.pulumi = self.with_key("api_key")

    def with_key(self, name: str) -> Pulumi:
        """The command line, where clients have one of the keys."""
        environment = {**self.project.environment, "SERVING_KEY": self.spy.values[name]}
        return Pulumi(self.project.folder, environment, STACK, said=self.said)

    def set_up(self) -> None:
        """What is typed once, with a Kubernetes that is not the newest."""
        pulumi, key = self.pulumi, self.spy.values["of the account"]
        self.find(addons={"kube-proxy": "v1.34.1-eksbuild.1"})
        assert pulumi("stack", "init").returncode == 0
        words = ("--plaintext", "kubernetes_version=1.34", "--plaintext", "owner=team-a")
        done = pulumi("config", "set-all", "--secret", f"aws:secretKey={key}", *words)
        assert done.returncode == 0, done.stderr

    def find(self, **changed: Any) -> None:
        """Change what the account shows."""
        account = read_account(self.project.cloud)
        write_account(self.project.cloud, replace(account, **changed))

    def assert_secrets_are_hidden(self) -> dict[str, Any]:
        """Nothing of them is in what was printed, nor in what is on disk; returns the exported state.

        They are in the state, though, for whoever may ask for them, and in the cluster.
        """
        project, spy = self.project, self.spy
        state = self.pulumi("stack", "export").stdout
        assert spy.sees_in("".join(self.said)) == set()
        assert spy.sees_under(*self.pulumi.written) == {}
        used = set(spy.values) - {"api_key"}
        shown = self.pulumi("stack", "export", "--show-secrets").stdout
        assert spy.sees_in(shown) == used
        (kept,) = resources(project.cloud, "Secret")
        assert spy.sees_in(kept.read_text()) == used - {"of the account"}
        document: dict[str, Any] = json.loads(state)
        return document


def assert_kubeconfig_asks_for_a_token(state: dict[str, Any]) -> None:
    rows = state["deployment"]["resources"]
    (provider,) = (each for each in rows if each["type"] == "pulumi:providers:kubernetes")
    kubeconfig = json.loads(provider["inputs"]["kubeconfig"])
    assert set(kubeconfig["users"][0]["user"]) == {"exec"}


def assert_a_set_waits_for_what_its_pods_name(state: dict[str, Any]) -> None:
    """And for what tunes their nodes; for no other object of the stack, of which there may be hundreds."""
    rows = state["deployment"]["resources"]
    (made,) = (each for each in rows if each["type"].endswith(":LeaderWorkerSet"))
    waited = {tuple(urn.split("::")[-2:]) for urn in made["dependencies"]}
    objects = {(kind.rpartition(":")[2], name) for kind, name in waited if "kubernetes:" in kind}
    assert objects == {
        ("Namespace", "namespace"),
        ("Secret", "secrets"),
        ("ServiceAccount", "engines"),
        ("ConfigMap", "launcher"),
        ("ConfigMap", "unified-0-launch"),
        ("DaemonSet", "node-tuning"),
        ("Release", "gpu-operator"),
    }


@pytest.mark.slow  # several updates by the real engine
def test_the_life_of_a_cluster_and_its_workload(
    make_project: Callable[..., ScratchProject], tmp_path: Path
) -> None:
    project = make_project(STACK)
    operator = Operator(project, tmp_path)
    pulumi, cloud = operator.pulumi, project.cloud
    operator.set_up()
    previewed = pulumi("preview", "--diff", "--policy-pack", "infra/provision/policy")
    assert previewed.returncode == 0, previewed.stdout + previewed.stderr
    assert "aws:eks/cluster:Cluster" in previewed.stdout
    assert "LeaderWorkerSet" in previewed.stdout
    assert not (cloud / "resources").exists()

    up = pulumi("up", "--yes", "--skip-preview", "--diff")
    assert up.returncode == 0, up.stdout + up.stderr
    assert {"Cluster", "NodeGroup", "Release", "LeaderWorkerSet"} <= set(kinds_left(cloud))

    # what the cloud takes by default for add-ons and nodes changes none that runs; nor does our own default version
    releases = {name: "1.34.0-20260301" for name in NODE_IMAGES if "/1.34/" in name}
    operator.find(
        addons={"kube-proxy": "v1.34.1-eksbuild.1", "vpc-cni": "v1.21.0-eksbuild.1"},
        parameters=releases,
    )
    assert pulumi("config", "rm", "kubernetes_version").returncode == 0
    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    # and whoever may not ask which clusters stand changes nothing of them either
    operator.find(forbidden=("getClusters",))
    assert set(pulumi.changes("up")) == {"same"}
    operator.find(forbidden=())

    # an object that somebody deleted comes back; another owner and another key replace nothing
    resources(cloud, "LeaderWorkerSet")[0].unlink()
    assert pulumi("config", "set", "owner", "team-b").returncode == 0
    steps = operator.with_key("another api_key").steps("up", "--refresh")
    assert set(steps) == {"create", "refresh", "same", "update"}
    assert {name.split()[0] for name in steps["create"]} == {"LeaderWorkerSet"}
    assert {"Secret secrets", "Cluster cluster", "NodeGroup accelerators"} <= steps["update"]
    assert {"LaunchTemplate accelerators", "LaunchTemplate system"} <= steps["same"]
    state = operator.assert_secrets_are_hidden()
    assert waits(state)["NodeGroup accelerators"] == {"update": 43200}
    assert_kubeconfig_asks_for_a_token(state)
    assert_a_set_waits_for_what_its_pods_name(state)

    # nodes of the block are protected, and the cluster that they stand in with them
    careless = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert careless.returncode == 0, careless.stdout + careless.stderr
    assert {"Cluster", "NodeGroup"} <= set(kinds_left(cloud))
    urn = next(word for word in shlex.split(give_back_nodes(STACK)) if word.startswith("urn:"))
    assert pulumi("state", "unprotect", urn, "--yes").returncode == 0
    # the cluster itself is kept by EKS, after its nodes are gone
    kept = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert kept.returncode != 0
    assert "InvalidRequestException" in kept.stdout + kept.stderr
    assert "Cluster" in kinds_left(cloud)
    lift_deletion_protection(cloud, STACK)
    destroyed = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr
    assert kinds_left(cloud) == BUCKET_KINDS
