"""Clusters that cannot take a stack are refused before anything is registered, with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.errors import PrerequisiteError, ProblemsFound
from tests.provision.cluster.answers import (
    A3,
    GB200,
    IN_ONE,
    INSTALL,
    NODES,
    OTHERS,
    Cluster,
    changed,
    cordoned,
    enforcing,
    lacking,
    namespace_of,
    of_kind,
    split_domain,
    stack_file,
    tainted,
    two_racks,
    with_node,
)
from tests.provision.kubernetes_program import (
    A3_NODES,
    CLAIMS,
    DOMAINS,
    GB200_NODES,
    LWS,
    UNITS,
    WEBHOOKS,
    put_kubectl,
    run_program,
    whole_cluster,
)


@pytest.mark.parametrize(
    ("stack", "answers", "what", "fix"),
    [
        (A3, lacking(LWS), "knows no LeaderWorkerSet", INSTALL),
        (A3, changed(WEBHOOKS, {"items": []}), "none of its webhooks is there", INSTALL),
        (GB200, lacking(DOMAINS), "knows no ComputeDomain", "helm install"),
        (GB200, lacking(CLAIMS), "knows no resource.k8s.io", "1.34"),
        (
            GB200,
            with_node(GB200_NODES, 2, allocatable={"nvidia.com/gpu": "2", "rdma/hca": "4"}),
            r"needs 6 nodes with 4 nvidia.com/gpu and 4 rdma/hca each; .* 5 .*\(node-2 has 2 nvidia",
            "pulumi config set node_selector",
        ),
        (
            A3,
            with_node(A3_NODES, 0, allocatable={"huawei.com/Ascend910": "16"}),
            "node-0 has 0 rdma/hca",
            "device plugin",
        ),
        (A3, cordoned(A3_NODES, 3), r"3 have that \(node-3 is cordoned or not ready\)", "uncordon"),
        (A3, changed(A3_NODES, {"items": []}), "of the 0 with accelerator=huawei-Ascend910", "Add"),
        (GB200, split_domain(), "the largest of 2 has 4", "one rack"),
        (
            GB200,
            two_racks(2),
            r"fewer than the 6 nodes that the stack needs \(b.1 has 2\)",
            "node_selector nvidia.com/gpu.product=NVIDIA-GB200,nvidia.com/gpu.clique=rack.0 --stack",
        ),
        (
            GB200,
            tainted(GB200_NODES, 1, {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"}),
            r"5 have that \(node-1 has the taint kubernetes.io/arch=arm64:NoSchedule\)",
            "untaint",
        ),
        (
            A3,
            tainted(A3_NODES, 1, {"key": "huawei.com/Ascend910", "effect": "NoExecute"}),
            r"node-1 has the taint huawei.com/Ascend910:NoExecute",
            "untaint",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", namespace_of(A3, is_own=True, is_lent=True)),
            "was made for this stack and is lent to it",
            f"kubectl label namespace {A3} moe-infra/lent-to-",
        ),
        (
            A3,
            changed(
                f"/api/v1/namespaces/{A3}",
                {"metadata": {"deletionTimestamp": "2026-11-22T06:00:00Z"}},
            ),
            "is being deleted",
            f"kubectl get namespace {A3}",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", enforcing(A3, "baseline")),
            "enforces the pod security standard baseline",
            f"kubectl label --overwrite namespace {A3} pod-security.kubernetes.io/enforce=privileged",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", OTHERS),
            "was not made for this stack: it belongs to a-shop",
            f"kubectl label namespace {A3} moe-infra/lent-to={A3}",
        ),
    ],
)  # fmt: skip
def test_a_cluster_that_cannot_take_the_stack_is_refused_with_the_fix(
    provisioned: Cluster, stack: str, answers: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(ProblemsFound, match=what) as refused:
        provisioned(stack, answers)
    (problem,) = refused.value.problems
    assert fix in problem.fix


HARMLESS = (
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},  # pods tolerate it
    {"key": "example.com/slow", "effect": "PreferNoSchedule"},
)


@pytest.mark.parametrize("answers", [two_racks(6), tainted(GB200_NODES, 1, *HARMLESS)])
def test_what_stops_no_pod_is_not_refused(provisioned: Cluster, answers: dict[str, Any]) -> None:
    assert len(of_kind(provisioned(GB200, answers), "LeaderWorkerSet")) == 3


def test_a_unit_wants_its_own_definition(provisioned: Cluster, tmp_path: Path) -> None:
    root = stack_file(tmp_path, **IN_ONE)
    with pytest.raises(ProblemsFound, match="knows no DisaggregatedSet") as refused:
        provisioned("mine", lacking(UNITS), root=root, **NODES)
    (problem,) = refused.value.problems
    assert INSTALL in problem.fix
    assert "kubernetes.workload: leader-worker-set" in problem.fix


def test_kubelets_that_may_forbid_reserved_ports_are_warned_of(
    provisioned: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    provisioned(A3, with_node(A3_NODES, 1, nodeInfo={"kubeletVersion": "v1.26.15-r3"}))
    (told,) = [each for each in said if "ip_local_reserved_ports" in each]
    assert "node-1 has v1.26.15-r3" in told
    assert "--allowed-unsafe-sysctls=net.ipv4.ip_local_reserved_ports" in told
    provisioned(GB200, with_node(GB200_NODES, 1, nodeInfo={"kubeletVersion": "v1.26.15-r3"}))
    assert len([each for each in said if "ip_local_reserved_ports" in each]) == 1  # binds none


def test_nodes_without_the_pages_of_efa_are_refused(provisioned: Cluster) -> None:
    answers = whole_cluster()
    for node in answers[GB200_NODES]["items"]:
        pages = {"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "10256Mi"}
        node["status"]["allocatable"] = {"nvidia.com/gpu": "4", **pages}
    efa = {"network_resource": "vpc.amazonaws.com/efa=4"}
    assert of_kind(provisioned(GB200, answers, **efa), "LeaderWorkerSet")
    answers[GB200_NODES]["items"][2]["status"]["allocatable"]["hugepages-2Mi"] = "1Gi"
    with pytest.raises(ProblemsFound, match="node-2 has 1Gi hugepages-2Mi of 5120Mi"):
        provisioned(GB200, answers, **efa)


def test_all_that_is_wrong_is_told_at_once(provisioned: Cluster) -> None:
    with pytest.raises(ProblemsFound) as refused:
        provisioned(GB200, lacking(LWS, DOMAINS, GB200_NODES))
    assert len(refused.value.problems) == 3


def test_nothing_is_registered_in_a_cluster_that_is_refused(
    provisioned: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.provision.kubernetes_program._Recorder.new_resource", None)
    with pytest.raises(ProblemsFound):
        provisioned(A3, lacking(LWS))


@pytest.mark.parametrize(
    "said", ["The connection to the server 192.0.2.1:6443 was refused", "error: no context exists with the name"]
)  # fmt: skip
def test_a_kubeconfig_that_does_not_answer_is_one_message(provisioned: Cluster, said: str) -> None:
    with pytest.raises(PrerequisiteError, match=said) as refused:
        provisioned(A3, {"silent": said})
    assert "kubectl --context=rack-1 get nodes" in refused.value.fix


def test_a_machine_without_kubectl_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_kubectl(tmp_path / "bin", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="no kubectl"):
        run_program(A3, tmp_path / "bin")
