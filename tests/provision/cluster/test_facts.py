"""What an operator says of a cluster and of a stack in it: refused or warned of before the cluster changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.errors import InfraError, ProblemsFound
from tests.provision.cluster.answers import (
    A3,
    Cluster,
    stack_file,
)


def test_what_the_rules_refuse_is_refused_before_the_cluster_is_asked(
    provisioned: Cluster, tmp_path: Path
) -> None:
    root = stack_file(tmp_path, defaults={"max_model_len": 2000000})
    with pytest.raises(ProblemsFound, match=r"max_model_len.*2000000") as refused:
        provisioned("mine", {"silent": "nobody is there"}, root=root, node_selector="a=b")
    assert all(problem.blocks for problem in refused.value.problems)


def test_what_the_rules_warn_of_is_logged(
    provisioned: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    root = stack_file(tmp_path, defaults={"env": {"VLLM_NOBODY_READS_THIS": "1"}})
    provisioned("mine", root=root, node_selector="nvidia.com/gpu.product=NVIDIA-GB200")
    assert any("VLLM_NOBODY_READS_THIS" in each for each in said)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubernetes_context", ""),
        ("node_selector", ""),
        ("node_selector", "no-equals"),
        ("network_resource", ""),
        ("network_resource", "rdma/hca"),
        ("network_resource", "rdma/hca=0"),
        ("namespace", "Not_A_Name"),
        ("node_tuning", "yes"),
        ("owner", "Team A"),
        ("cost_center", "-7"),
    ],
)
def test_a_fact_that_is_missing_or_wrong_names_the_command(
    provisioned: Cluster, key: str, value: str
) -> None:
    with pytest.raises(ProblemsFound) as refused:
        provisioned(A3, **{key: value})
    (problem,) = refused.value.problems
    assert problem.field == f"moe-infra:{key}"
    assert problem.fix.startswith(f"Type: pulumi config set {key} ")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"ingress": "internal-load-balancer"}, "has its own way in"),
        ({"weights": {"storage": "efs"}}, "efs has no form in pods"),
    ],
)
def test_what_has_no_form_in_pods_is_refused(
    provisioned: Cluster, tmp_path: Path, fields: dict[str, Any], what: str
) -> None:
    root = stack_file(tmp_path, **fields)
    with pytest.raises(InfraError, match=what):
        provisioned("mine", root=root, node_selector="a=b")
