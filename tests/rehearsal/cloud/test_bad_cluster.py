"""What an operator gets wrong about a cluster, typed at the real command line: one message, nothing made.

A stand-in for kubectl answers for the cluster. What a real control plane says is in `tests/kubernetes/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.provision.kubernetes_program import CLAIMS, LWS, UNITS, put_kubectl, whole_cluster
from tests.rehearsal.cloud.command import Pulumi

if TYPE_CHECKING:
    from infra.rehearsal.cloud.scratch_project import ScratchProject

    Make = Callable[..., ScratchProject]

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several previews by the real engine
]

GB200 = "k8s-gb200-2p1d"
FACTS = {
    "kubernetes_context": "rack-1",
    "network_resource": "rdma/hca=4",
    "node_selector": "nvidia.com/gpu.product=NVIDIA-GB200",
}
Refusal = Callable[..., str]


@pytest.fixture
def refusal(make_project: Make, tmp_path: Path) -> Refusal:
    """What `pulumi preview` says of a stack that extends the one on GB200, in a cluster that answers so."""
    folder, spec = tmp_path / "kubectl", tmp_path / "mine.yaml"
    spec.write_text(yaml.safe_dump({"extends": GB200}))
    project = make_project("mine", spec)
    path = f"{folder}:{project.environment['PATH']}"
    pulumi = Pulumi(project.folder, {**project.environment, "PATH": path}, "mine")
    assert pulumi("stack", "init").returncode == 0

    def refuse(answers: Mapping[str, Any], facts: Mapping[str, str], **fields: Any) -> str:
        put_kubectl(folder, answers)
        spec.write_text(yaml.safe_dump({"extends": GB200, **fields}))
        words = [f"--config=moe-infra:{key}={value}" for key, value in facts.items()]
        done = pulumi("preview", *words)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stdout + done.stderr
        assert "kubernetes:" not in done.stdout  # no object was registered
        asked = (folder / "asked").read_text().splitlines()
        assert all("get --raw" in line for line in asked)  # looked at, never touched
        return " ".join(done.stdout.split())

    return refuse


def test_what_is_wrong_with_the_operators_facts_is_told_at_once(refusal: Refusal) -> None:
    wrong = {
        "network_resource": "rdma/hca",
        "namespace": "Not_A_Name",
        "node_tuning": "yes",
        "owner": "Team A",
    }
    told = refusal(whole_cluster(), wrong)
    for key, example in (
        ("kubernetes_context", "my-cluster"),
        ("node_selector", "nvidia.com/gpu.product=NVIDIA-GB200"),
        ("network_resource", "rdma/hca=8"),
        ("namespace", "serving"),
        ("node_tuning", "none"),
        ("owner", "team-a"),
    ):
        assert f"Type: pulumi config set {key} {example} --stack mine" in told


def test_what_a_cluster_lacks_is_told_at_once(refusal: Refusal) -> None:
    answers = whole_cluster()
    for path in (UNITS, CLAIMS):
        del answers[path]
    ending = {"deletionTimestamp": "2026-11-22T06:00:00Z"}
    answers["/api/v1/namespaces/mine"] = {"metadata": ending}
    unit = {"workload": "disaggregated-set"}
    told = refusal(answers, FACTS, kubernetes=unit)
    assert "The API server knows no DisaggregatedSet" in told
    assert "knows no resource.k8s.io: pods cannot claim their NVLink domain" in told
    assert "The namespace mine is being deleted" in told
    del answers[LWS]
    labels = {"moe-infra/lent-to": "mine", "pod-security.kubernetes.io/enforce": "restricted"}
    answers["/api/v1/namespaces/mine"] = {"metadata": {"labels": labels}}
    told = refusal(answers, FACTS)
    assert "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws" in told
    assert "kubectl label --overwrite namespace mine" in told


def test_what_no_pod_can_be_is_refused_before_the_cluster_is_asked(refusal: Refusal) -> None:
    silent = {"silent": "nobody may ask"}
    told = refusal(silent, FACTS, ingress="internal-load-balancer")
    assert "route to the stack's service" in told
    told = refusal(silent, {**FACTS, "namespace": "team"}, weights={"storage": "pvc"})
    assert "Type: pulumi config set weights_claim models --stack mine" in told
    assert "nobody may ask" not in told
    told = refusal(silent, FACTS)
    assert "cluster rack-1: It does not answer: nobody may ask" in told
    assert "Nothing was created" in told
