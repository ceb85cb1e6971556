"""Stacks on Kubernetes for tests, and what a cluster answers that is right or lacks something."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.provision.kubernetes_program import (
    GB200_NODES,
    Made,
    whole_cluster,
)

GB200, A3 = "k8s-gb200-2p1d", "k8s-a3-2p1d"
# The stack on GB200 as one DisaggregatedSet.
IN_ONE = {"kubernetes": {"workload": "disaggregated-set"}}
NODES = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200"}
INSTALL = "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases"
Cluster = Callable[..., Made]


def stack_file(tmp_path: Path, **fields: Any) -> Path:
    """A project with one stack of its own, `mine`, that extends the one on GB200."""
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "stacks" / "mine.yaml").write_text(yaml.safe_dump({"extends": GB200, **fields}))
    return folder


def of_kind(made: Made, kind: str) -> dict[str, Any]:
    return {
        name: inputs for (typ, name), inputs in made.resources.items() if typ.endswith(f":{kind}")
    }


def lacking(*paths: str) -> dict[str, Any]:
    answers = whole_cluster()
    for path in paths:
        del answers[path]
    return answers


def changed(path: str, document: Any) -> dict[str, Any]:
    return {**whole_cluster(), path: document}


def with_node(path: str, number: int, **status: Any) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["status"].update(status)
    return answers


def cordoned(path: str, number: int) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["spec"]["unschedulable"] = True
    return answers


def split_domain() -> dict[str, Any]:
    answers = whole_cluster()
    for number in (4, 5):
        answers[GB200_NODES]["items"][number]["metadata"]["labels"] = {
            "nvidia.com/gpu.clique": "other.0"
        }
    return answers


def tainted(path: str, number: int, *taints: Mapping[str, str]) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["spec"]["taints"] = [*taints]
    return answers


def two_racks(second: int) -> dict[str, Any]:
    """Six nodes of one rack, and so many of another."""
    answers = whole_cluster()
    for number in range(6, 6 + second):
        more = copy.deepcopy(answers[GB200_NODES]["items"][0])
        more["metadata"] = {"name": f"node-{number}", "labels": {"nvidia.com/gpu.clique": "b.1"}}
        answers[GB200_NODES]["items"].append(more)
    return answers


def namespace_of(stack: str, *, is_own: bool, is_lent: bool) -> dict[str, Any]:
    own = {"app.kubernetes.io/instance": stack, "app.kubernetes.io/managed-by": "moe-infra"}
    lent = {"moe-infra/lent-to": stack}
    return {"metadata": {"labels": {**(own if is_own else {}), **(lent if is_lent else {})}}}


def enforcing(stack: str, level: str) -> dict[str, Any]:
    labels = {"moe-infra/lent-to": stack, "pod-security.kubernetes.io/enforce": level}
    return {"metadata": {"labels": labels}}


OTHERS = {"metadata": {"labels": {"app.kubernetes.io/instance": "a-shop"}}}
