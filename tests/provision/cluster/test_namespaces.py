"""Whose namespaces and claims a stack may use in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from tests.provision.cluster.answers import (
    A3,
    GB200,
    Cluster,
    changed,
    namespace_of,
    of_kind,
    stack_file,
)
from tests.provision.kubernetes_program import (
    whole_cluster,
)


def test_a_namespace_of_ours_is_taken_up_again(provisioned: Cluster) -> None:
    namespaces = of_kind(provisioned(A3), "Namespace")
    ours = changed(f"/api/v1/namespaces/{A3}", {"metadata": namespaces["namespace"]["metadata"]})
    assert of_kind(provisioned(A3, ours), "Namespace") == namespaces


def test_a_namespace_that_is_lent_is_used_and_never_made(provisioned: Cluster) -> None:
    lent = changed("/api/v1/namespaces/team", {"metadata": {"labels": {"moe-infra/lent-to": A3}}})
    made = provisioned(A3, lent, namespace="team")
    assert of_kind(made, "Namespace") == {}
    assert {i["metadata"]["namespace"] for i in of_kind(made, "LeaderWorkerSet").values()} == {
        "team"
    }


def test_weights_in_a_claim_want_the_claim(provisioned: Cluster, tmp_path: Path) -> None:
    root = stack_file(tmp_path, weights={"storage": "pvc"})
    facts = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200", "root": root}
    with pytest.raises(ProblemsFound, match="the claim with the weights"):
        provisioned("mine", **facts)
    namespace = "/api/v1/namespaces/mine"
    lent = changed(namespace, namespace_of("mine", is_own=False, is_lent=True))
    with pytest.raises(ProblemsFound, match="has no claim models"):
        provisioned("mine", lent, weights_claim="models", **facts)
    lent[f"{namespace}/persistentvolumeclaims/models"] = {}
    made = provisioned("mine", lent, weights_claim="models", **facts)
    assert of_kind(made, "LeaderWorkerSet")
    assert of_kind(made, "Namespace") == {}


@pytest.mark.parametrize("is_there", [False, True])
def test_weights_in_a_claim_never_lie_in_a_namespace_that_goes_with_the_stack(
    provisioned: Cluster, tmp_path: Path, is_there: bool
) -> None:
    answers = whole_cluster()
    if is_there:
        own = namespace_of("mine", is_own=True, is_lent=False)
        answers |= {"/api/v1/namespaces/mine": own}
        answers |= {"/api/v1/namespaces/mine/persistentvolumeclaims/models": {}}
    with pytest.raises(ProblemsFound, match="goes with it, and so would the claim") as refused:
        provisioned(
            "mine",
            answers,
            root=stack_file(tmp_path, weights={"storage": "pvc"}),
            node_selector="nvidia.com/gpu.product=NVIDIA-GB200",
            weights_claim="models",
        )
    (problem,) = refused.value.problems
    assert "lent to the stack by the label moe-infra/lent-to=mine" in problem.fix


def test_a_namespace_that_is_made_admits_what_lies_in_it(provisioned: Cluster) -> None:
    (namespace,) = of_kind(provisioned(GB200, owner="team-a"), "Namespace").values()
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["owner"] == "team-a"
