"""The pods of a Kubernetes object: each with its host, its group, and what its controller tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from infra.plan.foreign.yaml_pages import Node, Page

MAX_PODS = 512


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """One pod: its host, the leader's host, and what its controller tells it; whether others wait until it is ready."""

    host: str
    leader: str
    group: str
    role: str
    index: int
    size: int
    template: Node
    owner: str
    leads_in_turn: bool = False


def objects_of(pages: Sequence[Page]) -> list[Node]:
    """Every object, those of a List among them."""
    found: list[Node] = []
    for page in pages:
        if page.root.get("kind").text() == "List":
            found += page.root.get("items").nodes()
        else:
            found.append(page.root)
    return found


def _single_pods(root: Node, name: str) -> list[ManifestPod]:
    """Deployment, StatefulSet, Job: pods that know nothing of each other."""
    template = root.get("spec", "template")
    count = max(root.get("spec", "replicas").number(1), 1)
    return [_alone(name, index, template) for index in range(min(count, MAX_PODS + 1))]


def _pod(root: Node, name: str) -> list[ManifestPod]:
    return [_alone(name, 0, root)]


def _alone(name: str, index: int, template: Node) -> ManifestPod:
    host = f"{name}-{index}"
    role = _role_of(template, name)
    return ManifestPod(host, host, f"{name}/{index}", role, 0, 0, template, name)


def _leader_worker_set(root: Node, name: str) -> list[ManifestPod]:
    return _groups(
        root.get("spec"),
        name,
        _role_of(root.get("spec", "leaderWorkerTemplate", "workerTemplate"), name),
    )


def _disaggregated_set(root: Node, name: str) -> list[ManifestPod]:
    """Roles of LeaderWorkerSets; v1 and the earlier form, where a role's template lies under `template`."""
    found: list[ManifestPod] = []
    for role in root.get("spec", "roles").nodes():
        spec = role.get("spec")
        inner = spec if spec.is_there else role.get("template", "spec")
        own = role.get("name").text()
        found += _groups(inner if inner.is_there else role, f"{name}-{own}", own)
    return found


def _groups(spec: Node, name: str, role: str) -> list[ManifestPod]:
    template = spec.get("leaderWorkerTemplate")
    size = max(template.get("size").number(1), 1)
    leader = template.get("leaderTemplate")
    worker = template.get("workerTemplate")
    found: list[ManifestPod] = []
    for replica in range(min(max(spec.get("replicas").number(1), 1), MAX_PODS + 1)):
        first = f"{name}-{replica}-0"
        for index in range(min(size, MAX_PODS + 1)):
            pod_template = leader if index == 0 and leader.is_there else worker
            host = f"{name}-{replica}-{index}"
            group = f"{name}/{replica}"
            in_turn = index == 0 and spec.get("startupPolicy").text() == "LeaderReady"
            found.append(
                ManifestPod(host, first, group, role, index, size, pod_template, name, in_turn)
            )
            if len(found) > MAX_PODS:
                return found
    return found


PODS_OF: Mapping[str, Callable[[Node, str], list[ManifestPod]]] = {
    "Deployment": _single_pods,
    "StatefulSet": _single_pods,
    "DaemonSet": _single_pods,
    "ReplicaSet": _single_pods,
    "Job": _single_pods,
    "Pod": _pod,
    "LeaderWorkerSet": _leader_worker_set,
    "DisaggregatedSet": _disaggregated_set,
}


def _role_of(template: Node, name: str) -> str:
    """The label that says a role, else the object's name."""
    for key, node in template.get("metadata", "labels").items():
        if key.endswith("role") and node.text() in ("prefill", "decode"):
            return node.text()
    return name
