"""What a cluster holds, read from its API: pods as kubelets resolve them, names as the cluster's DNS answers them."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from infra.rehearsal.cluster.api import Api, Document
from tests.render.pods import launch_maps, resolved

Found = TypeVar("Found")
# Told again and again by controllers, or by the API server of itself: no stack's.
UNTOLD = frozenset(
    {"events", "leases", "componentstatuses", "endpointslices", "endpoints", "apiservices"}
)
LOOK_S = 0.2


@dataclass(frozen=True)
class SeenPod:
    """A pod that runs.

    Args:
        environment: of its container, resolved.
        files: text by name below the launcher's folder.
        domain: value of its node's label for the NVLink domain, "" without.
    """

    name: str
    uid: str
    node: str
    domain: str
    address: str
    environment: Mapping[str, str]
    files: Mapping[str, str]
    document: Mapping[str, Any]

    @property
    def container(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["spec"]["containers"][0]
        return found

    @property
    def told(self) -> dict[str, Any]:
        """What its launcher is told of its host: its processes, and the peers that it awaits."""
        told = json.loads(self.files["processes.json"])
        group = int(self.environment.get("MOE_GROUP_INDEX", "0"))
        place = group * told["group_size"] + int(self.environment["MOE_WORKER_INDEX"])
        host: dict[str, Any] = told["hosts"][place]
        return host


def wait_for(what: str, look: Callable[[], Found | None], limit_s: float = 300.0) -> Found:
    """What `look` finds, as soon as it finds something true."""
    until = time.monotonic() + limit_s
    while not (found := look()):
        if time.monotonic() > until:
            pytest.fail(f"waited {limit_s} s for {what}")
        time.sleep(LOOK_S)
    return found


def running_pods(api: Api, namespace: str, count: int) -> dict[str, SeenPod]:
    """So many pods of engines and a router by address, as soon as all of them run and none of them is going."""

    def look() -> list[Document] | None:
        pods = [pod for pod in pods_in(api, namespace) if not is_of_a_daemon_set(pod)]
        are_well = all(
            pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
            for pod in pods
        )
        return pods if len(pods) == count and are_well else None

    try:
        pods = wait_for(f"{count} pods of {namespace}", look)
    except pytest.fail.Exception as late:
        pytest.fail(f"{late}: {_why(api, namespace)}")
    return {pod["status"]["podIP"]: _seen(api, pod) for pod in pods}


def pods_in(api: Api, namespace: str) -> list[Document]:
    """Every pod of a namespace."""
    return api.items(f"/api/v1/namespaces/{namespace}/pods")


def is_of_a_daemon_set(pod: Document) -> bool:
    """Whether a pod tunes its node, and runs no process of the plan."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


def names_of(api: Api, namespace: str) -> dict[str, set[str]]:
    """Pod addresses by name, as the cluster's DNS answers (its source: endpoint slices).

    A service's own name leads to all of its pods, `<hostname>.<service>` to one. Services with an address of their own
    lead to it, and through it to the same pods.
    """
    found: dict[str, set[str]] = {}
    for piece in api.items(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"):
        service = piece["metadata"]["labels"]["kubernetes.io/service-name"]
        for endpoint in piece.get("endpoints") or ():
            hostname = endpoint.get("hostname")
            for name in (service, *([f"{hostname}.{service}"] if hostname else [])):
                found.setdefault(name, set()).update(endpoint["addresses"])
    return found


def everything(api: Api) -> set[str]:
    """Every object of every kind that the API server knows, by path; what it tells of itself left out."""
    return {
        f"{collection}/{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for collection in _collections(api)
        for item in api.items(collection)
    }


def _collections(api: Api) -> Iterator[str]:
    groups = [("/api/v1", "v1")]
    for group in api.ask("GET", "/apis")["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        groups.append((f"/apis/{version}", version))
    for path, _ in groups:
        for kind in api.ask("GET", path)["resources"]:
            if "list" in kind["verbs"] and "/" not in kind["name"] and kind["name"] not in UNTOLD:
                yield f"{path}/{kind['name']}"


def _seen(api: Api, pod: Document) -> SeenPod:
    metadata, spec = pod["metadata"], pod["spec"]
    environment: dict[str, str] = {}
    for row in spec["containers"][0]["env"]:
        environment[row["name"]] = _value(api, row, pod, environment)
    core = f"/api/v1/namespaces/{metadata['namespace']}"
    node = api.ask("GET", f"/api/v1/nodes/{spec['nodeName']}")
    return SeenPod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec["nodeName"],
        domain=node["metadata"]["labels"].get("nvidia.com/gpu.clique", ""),
        address=pod["status"]["podIP"],
        environment=environment,
        files={
            file: text
            for each in launch_maps(spec["volumes"])
            for file, text in api.ask("GET", f"{core}/configmaps/{each}")["data"].items()
        },
        document=pod,
    )


def _value(api: Api, row: Document, pod: Document, known: Mapping[str, str]) -> str:
    """A variable of a container, as the kubelet resolves it."""
    if "valueFrom" not in row:
        return resolved(row.get("value", ""), known)
    source, metadata = row["valueFrom"], pod["metadata"]
    if "secretKeyRef" in source:
        where = source["secretKeyRef"]
        secret = api.ask(
            "GET", f"/api/v1/namespaces/{metadata['namespace']}/secrets/{where['name']}"
        )
        return base64.b64decode(secret["data"][where["key"]]).decode()
    path = source["fieldRef"]["fieldPath"]
    if path == "status.podIP":
        return str(pod["status"]["podIP"])
    found = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    assert found is not None, path
    return str(metadata[found[1]][found[2]])


def _why(api: Api, namespace: str) -> str:
    """Where its pods stand, and what was said of them."""
    pods = pods_in(api, namespace)
    events = api.items(f"/api/v1/namespaces/{namespace}/events")
    rows = [
        f"{pod['metadata']['name']} {pod['status']['phase']} on {pod['spec'].get('nodeName')}"
        for pod in pods
    ]
    return "\n".join(rows + [f"{e['involvedObject']['name']}: {e.get('message')}" for e in events])
