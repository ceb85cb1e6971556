"""Pods as the kubelet makes them of our documents: variables resolved, ConfigMaps looked up. Nothing of it is ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from infra.render.cluster_facts import ClusterFacts, WeightsVolume
from infra.render.pod_documents import PodObject

CLUSTER = ClusterFacts(
    namespace="serving",
    node_selector={"example.com/accelerator": "yes"},
    network={"rdma/hca": 4},
    huge_pages_mib=0,
    weights=WeightsVolume(kind="node"),
)
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass(frozen=True)
class Pod:
    """One pod that a controller would make.

    Args:
        name: with the suffix of its index.
        address: of its own, made up.
        environment: of its container, resolved.
        files: text by name below the launcher's folder.
    """

    name: str
    address: str
    spec: Mapping[str, Any]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def container(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.spec["containers"][0]
        return found


def pods_of(objects: Sequence[PodObject]) -> Iterator[Pod]:
    """Every pod of LeaderWorkerSets and Deployments, in their order."""
    maps = {
        each.document["metadata"]["name"]: each.document["data"]  # type: ignore[index]
        for each in objects
        if each.kind == "ConfigMap"
    }
    number = 0
    for each in objects:
        document: Any = yaml.safe_load(yaml.safe_dump(each.document))
        name = document["metadata"]["name"]
        if each.kind == "LeaderWorkerSet":
            group = document["spec"]["leaderWorkerTemplate"]
            assert document["spec"]["replicas"] == 1
            places = [(f"{name}-0" + f"-{i}" * (i > 0), i) for i in range(group["size"])]
            template = group["workerTemplate"]
        elif each.kind == "Deployment":
            places, template = [(f"{name}-5d4f8-abcde", 0)], document["spec"]["template"]
        else:
            continue
        for pod, index in places:
            number += 1
            labels = {**template["metadata"]["labels"], WORKER_INDEX: str(index)}
            yield _pod(pod, f"10.0.0.{number}", template["spec"], labels, maps)


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
    launch = next(v["configMap"]["name"] for v in spec["volumes"] if v["name"] == "launch")
    return Pod(name, address, spec, environment, maps[launch])


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


def resolved(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` and `$$`, read a character at a time as in kubernetes expansion.go, v1.35.0."""
    out, place = "", 0
    while place < len(text):
        if text[place] == "$" and place + 1 < len(text):
            following = text[place + 1]
            close = text.find(")", place)
            if following == "$":
                out, place = out + "$", place + 2
                continue
            if following == "(" and close > 0:
                name = text[place + 2 : close]
                out += environment.get(name, f"$({name})")
                place = close + 1
                continue
        out, place = out + text[place], place + 1
    return out
