"""Pods as the kubelet makes them of our documents: variables resolved, ConfigMaps looked up. Nothing of it is ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from infra.rehearsal.cluster.pods import resolved
from infra.render.cluster_facts import ClusterFacts, WeightsVolume
from infra.render.pod_objects import PodObject
from infra.spec.plain_yaml import parse_yaml

CLUSTER = ClusterFacts(
    namespace="serving",
    node_selector={"example.com/accelerator": "yes"},
    network={"rdma/hca": 4},
    huge_pages_mib=0,
    weights=WeightsVolume(kind="node"),
    labels={"owner": "team-a"},
    node_tuning="apply",
)
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
UNIT = "disaggregatedset.x-k8s.io"
REVISION = "0f1e2d3c"


@dataclass(frozen=True)
class Pod:
    """One pod that a controller would make.

    Args:
        name: with the suffix of its index.
        address: of its own, made up.
        labels: with those that its controllers add.
        environment: of its container, resolved.
        files: text by name below the launcher's folder.
    """

    name: str
    address: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def container(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.spec["containers"][0]
        return found


def launch_maps(volumes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the ConfigMaps below the launcher's folder."""
    (launch,) = (each for each in volumes if each["name"] == "launch")
    return [each["configMap"]["name"] for each in launch["projected"]["sources"]]


def pods_of(objects: Sequence[PodObject]) -> Iterator[Pod]:
    """Every pod of LeaderWorkerSets, DisaggregatedSets and Deployments, in their order."""
    maps = {
        each.document["metadata"]["name"]: each.document["data"]  # type: ignore[index]
        for each in objects
        if each.kind == "ConfigMap"
    }
    number = 0
    for each in objects:
        document: Any = parse_yaml(yaml.safe_dump(each.document))
        for pod, template, labels in _made_of(each.kind, document):
            number += 1
            found = {**template["metadata"]["labels"], **labels}
            yield _pod(pod, f"10.0.0.{number}", template["spec"], found, maps)


def _made_of(kind: str, document: Any) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """What an object's controllers make: name, template and added labels of each pod."""
    name, spec = document["metadata"]["name"], document.get("spec", {})
    if kind == "LeaderWorkerSet":
        assert spec["replicas"] == 1
        yield from _of_set(name, spec)
    elif kind == "DisaggregatedSet":
        for role in spec["roles"]:
            own = {f"{UNIT}/name": name, f"{UNIT}/role": role["name"], f"{UNIT}/revision": REVISION}
            for pod, template, labels in _of_set(f"{name}-{REVISION}-{role['name']}", role["spec"]):
                yield pod, template, {**labels, **own}
    elif kind == "Deployment":
        yield f"{name}-5d4f8-abcde", spec["template"], {}


def _of_set(name: str, spec: Any) -> Iterator[tuple[str, Any, dict[str, str]]]:
    group = spec["leaderWorkerTemplate"]
    for replica in range(spec["replicas"]):
        for index in range(group["size"]):
            labels = {GROUP_INDEX: str(replica), WORKER_INDEX: str(index)}
            suffix = f"-{index}" if index else ""
            yield f"{name}-{replica}{suffix}", group["workerTemplate"], labels


def pod_behind(address: str, pods: Sequence[Pod], objects: Sequence[PodObject]) -> Pod:
    """The only pod that a name of the address book leads to: by its own name, or by a service's labels."""
    first = address.partition(".")[0]
    services = {
        each.document["metadata"]["name"]: each.document["spec"]["selector"]  # type: ignore[index]
        for each in objects
        if each.kind == "Service"
    }
    selector = services.get(first)
    (found,) = [
        pod
        for pod in pods
        if (pod.name == first if selector is None else selector.items() <= pod.labels.items())
    ]
    return found


def _pod(
    name: str,
    address: str,
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
    maps: Mapping[str, Any],
) -> Pod:
    container = spec["containers"][0]
    environment: dict[str, str] = {}
    for row in container["env"]:
        environment[row["name"]] = _value(row, address, labels, environment)
    files = {
        file: text for each in launch_maps(spec["volumes"]) for file, text in maps[each].items()
    }
    return Pod(name, address, labels, spec, environment, files)


def _value(
    row: Mapping[str, Any], address: str, labels: Mapping[str, str], known: Mapping[str, str]
) -> str:
    if "value" in row:
        return resolved(str(row["value"]), known)
    source = row["valueFrom"]
    if "secretKeyRef" in source:
        return f"secret:{source['secretKeyRef']['key']}"
    path = source["fieldRef"]["fieldPath"]
    if path == "status.podIP":
        return address
    label = re.fullmatch(r"metadata\.labels\['([^']+)'\]", path)
    assert label is not None, path
    return labels[label[1]]
