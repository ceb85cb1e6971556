"""A cluster whose pods ask for a network that the stack's image does not speak to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_stack
from infra.provision.cluster.rules import OF_NETWORKS, judge_networks
from infra.spec.load import load_stack
from tests.checks.rule_cases import rule_cases
from tests.render.pods import CLUSTER

STACK = str(Path(__file__).parents[2] / "stacks" / "vllm-internal-2n.yaml")


@pytest.mark.parametrize(
    ("resource", "image", "rules"),
    [
        ("vpc.amazonaws.com/efa", "", ["efa-userspace"]),
        ("vpc.amazonaws.com/efa", "engine.image=registry.example.com/vllm-efa:1", []),
        ("rdma/hca", "", []),
    ],
)
def test_the_image_speaks_to_the_network_that_pods_ask_for(
    resource: str, image: str, rules: list[str]
) -> None:
    catalog = Catalog()
    sets = ["platform=existing-kubernetes", "weights.storage=pvc", *([image] if image else [])]
    stack = load_stack(STACK, sets)
    plan = compile_stack(stack, catalog=catalog).plan
    facts = replace(CLUSTER, network={resource: 16})
    found = judge_networks(plan, stack, facts, catalog)
    assert [problem.rule for problem in found] == rules
    assert not [problem for problem in found if problem.blocks]


def test_these_are_the_rules_of_networks() -> None:
    assert {name for name in rule_cases() if name.startswith("efa-")} == set(OF_NETWORKS)
