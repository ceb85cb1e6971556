"""Facts of a Kubernetes cluster for one stack, read from `pulumi config` and judged together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from infra.errors import Problem, ProblemsFound
from infra.plan.grammar import is_image
from infra.provision.config_problems import PROJECT_NAME, account_problem
from infra.provision.naming import OWNER_TAGS
from infra.provision.own_config import read_own_values
from infra.render.cluster_facts import (
    EFA_RESOURCE,
    ClusterFacts,
    LustreVolume,
    NodeTuningChoice,
    WeightsVolume,
)
from infra.spec.stack import Weights

# The AMIs with EFA set aside 5128 pages of 2 MiB; EKS user guide, node EFA: pods ask for this much.
EFA_HUGE_PAGES_MIB = 5120
NONE = "none"
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(
    r"([a-z0-9.-]+/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?=([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?"
)
_RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9][\w.-]*=[1-9]\d*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NODE_TUNING: Mapping[str, NodeTuningChoice] = {name: name for name in get_args(NodeTuningChoice)}
_STORAGE = (None, "local", "shared-mount", "pvc", "fsx-lustre")

CLUSTER_CONFIG_NAMES = (
    "kubeconfig",
    "kubernetes_context",
    "namespace",
    "node_selector",
    "network_resource",
    "weights_claim",
    "fsx_id",
    "fsx_dns_name",
    "fsx_mount_name",
    "node_tuning",
    "node_tuning_image",
    *OWNER_TAGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How the cluster's API is reached. `kubeconfig` is None for kubectl's own default."""

    kubeconfig: str | None
    context: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDemand:
    """What a stack asks the operator about a cluster.

    Args:
        spans_hosts: whether its engines run on more than one host.
    """

    stack: str
    weights: Weights
    spans_hosts: bool


def read_cluster_values() -> dict[str, str]:
    """The cluster's configuration of the selected stack as Pulumi gives it, by short name.

    Raises:
        ProblemsFound: values that are set as secrets.
    """
    return read_own_values((*CLUSTER_CONFIG_NAMES, "fsx_capacity_gib"))


def read_cluster(
    values: Mapping[str, str], demand: ClusterDemand
) -> tuple[ClusterAccess, ClusterFacts]:
    """How the cluster is reached, and what pods are made with, from values by short name; empty is not set.

    Raises:
        ProblemsFound: every value that is missing or wrong, each with the command to type.
    """
    known = {name: value for name, value in values.items() if value != ""}
    problems = [
        *_required(known, demand),
        *_malformed(known, demand),
        *_weights_problems(demand),
    ]
    if problems:
        raise ProblemsFound(tuple(problems))
    network = _network(known) if demand.spans_hosts else {}
    return (
        ClusterAccess(kubeconfig=known.get("kubeconfig"), context=known["kubernetes_context"]),
        ClusterFacts(
            namespace=known.get("namespace", demand.stack),
            node_selector=dict(each.split("=", 1) for each in known["node_selector"].split(",")),
            network=network,
            huge_pages_mib=EFA_HUGE_PAGES_MIB if EFA_RESOURCE in network else 0,
            weights=_weights(known, demand.weights),
            labels=owner_labels(known),
            node_tuning=NODE_TUNING[known.get("node_tuning", "apply")],
            node_tuning_image=known.get("node_tuning_image", ""),
        ),
    )


def owner_labels(known: Mapping[str, str]) -> dict[str, str]:
    """The labels that the owner wants on every object, under the names that tags have elsewhere."""
    return {name: known[name] for name in OWNER_TAGS if name in known}


def workload_problems(stack: str, known: Mapping[str, str]) -> list[Problem]:
    """What the objects of a stack cannot be made with, whoever made their cluster."""
    problems = []
    namespace = known.get("namespace", stack)
    if not _NAMESPACE_NAME.fullmatch(namespace):
        what = f"{namespace} is not a name of a namespace."
        problems.append(cluster_problem(stack, "namespace", what, "serving"))
    tuning = known.get("node_tuning", "apply")
    if tuning not in NODE_TUNING:
        what = f"{tuning} is none of {', '.join(NODE_TUNING)}."
        problems.append(cluster_problem(stack, "node_tuning", what, "none"))
    image = known.get("node_tuning_image")
    if image is not None and not is_image(image):
        what = f"{image} is not a reference of an image."
        example = "registry.example.com/python:3.12-slim"
        problems.append(cluster_problem(stack, "node_tuning_image", what, example))
    size = known.get("fsx_capacity_gib")
    if size is not None and not size.isdecimal():
        what = f"{size} is not a whole number."
        problems.append(cluster_problem(stack, "fsx_capacity_gib", what, "4800"))
    for name, value in owner_labels(known).items():
        if not _LABEL_VALUE.fullmatch(value):
            what = f"{value!r} cannot be a label in Kubernetes: letters, digits, `.`, `_` and `-`, at most 63."
            problems.append(cluster_problem(stack, name, what, "team-a"))
    return problems


def cluster_problem(stack: str, key: str, what: str, example: str) -> Problem:
    """A problem of one configuration key, with the command that mends it."""
    return account_problem(f"{PROJECT_NAME}:{key}", what, example, stack, "cluster-fact")


def examples_of_missing(known: Mapping[str, str], demand: ClusterDemand) -> dict[str, str]:
    """What a stack cannot be made without and nobody has set, by short name, each with an example."""
    wanted = _wanted(demand)
    return {key: example for key, (_, example) in wanted.items() if key not in known}


def _wanted(demand: ClusterDemand) -> dict[str, tuple[str, str]]:
    """What must be set, by short name: its meaning, and an example."""
    wanted = {
        "kubernetes_context": (
            "the context of your kubeconfig; the current one is never taken by accident",
            "my-cluster",
        ),
        "node_selector": (
            "labels of the nodes that carry the stack's accelerator",
            "nvidia.com/gpu.product=NVIDIA-GB200",
        ),
    }
    if demand.spans_hosts:
        wanted["network_resource"] = (
            f"what each pod asks for of the fabric ({NONE}: traffic between hosts goes over TCP)",
            "rdma/hca=8",
        )
    if demand.weights.storage == "pvc":
        meaning = "the claim with the weights, which exists in the namespace"
        wanted["weights_claim"] = (meaning, "models")
    if demand.weights.storage == "fsx-lustre":
        meaning = "weights.storage fsx-lustre mounts a file system that exists"
        wanted["fsx_id"] = (meaning, "fs-0123456789abcdef0")
        wanted["fsx_dns_name"] = (meaning, "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com")
        wanted["fsx_mount_name"] = (meaning, "abcdefgh")
    return wanted


def _required(known: Mapping[str, str], demand: ClusterDemand) -> list[Problem]:
    return [
        cluster_problem(demand.stack, key, f"Not set: {meaning}.", example)
        for key, (meaning, example) in _wanted(demand).items()
        if key not in known
    ]


def _malformed(known: Mapping[str, str], demand: ClusterDemand) -> list[Problem]:
    problems = workload_problems(demand.stack, known)
    selector = known.get("node_selector")
    if selector is not None and not all(_LABEL.fullmatch(each) for each in selector.split(",")):
        what = f"{selector} is not a list of labels, KEY=VALUE with commas between."
        example = "nvidia.com/gpu.product=NVIDIA-GB200"
        problems.append(cluster_problem(demand.stack, "node_selector", what, example))
    network = known.get("network_resource", NONE)
    if network != NONE and not all(_RESOURCE.fullmatch(each) for each in network.split(",")):
        what = f"{network} is not a list of resources, NAME=COUNT with commas between, nor {NONE}."
        problems.append(cluster_problem(demand.stack, "network_resource", what, "rdma/hca=8"))
    return problems


def _weights_problems(demand: ClusterDemand) -> list[Problem]:
    storage = demand.weights.storage
    if storage not in _STORAGE:
        what = f"weights.storage {storage} has no form in pods."
        fix = "Use local or shared-mount (a folder of every node), pvc, or fsx-lustre."
        file = f"stacks/{demand.stack}.yaml"
        return [
            Problem(
                rule="cluster-fact",
                severity="error",
                file=file,
                field="weights.storage",
                what=what,
                fix=fix,
            )
        ]
    return []


def _network(known: Mapping[str, str]) -> dict[str, int]:
    text = known["network_resource"]
    pairs = [] if text == NONE else [each.split("=", 1) for each in text.split(",")]
    return {name: int(count) for name, count in pairs}


def _weights(known: Mapping[str, str], weights: Weights) -> WeightsVolume:
    if weights.storage == "pvc":
        return WeightsVolume(kind="claim", claim=known["weights_claim"])
    if weights.storage != "fsx-lustre":
        return WeightsVolume(kind="node")
    lustre = LustreVolume(
        file_system_id=known["fsx_id"],
        dns_name=known["fsx_dns_name"],
        mount_name=known["fsx_mount_name"],
        capacity_gib=int(known["fsx_capacity_gib"]),
    )
    return WeightsVolume(kind="lustre", lustre=lustre)
