"""What a cluster holds, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from infra.rehearsal.cluster.api import Api, Document
from infra.rehearsal.cluster.pods import ResolvedPod, is_of_a_daemon_set, pods_in, resolve_pod

Found = TypeVar("Found")
# Told again and again by controllers, or by the API server of itself: no stack's.
UNTOLD = frozenset(
    {"events", "leases", "componentstatuses", "endpointslices", "endpoints", "apiservices"}
)
LOOK_S = 0.2


def wait_for(what: str, look: Callable[[], Found | None], limit_s: float = 300.0) -> Found:
    """What `look` finds, as soon as it finds something true."""
    until = time.monotonic() + limit_s
    while not (found := look()):
        if time.monotonic() > until:
            pytest.fail(f"waited {limit_s} s for {what}")
        time.sleep(LOOK_S)
    return found


def running_pods(api: Api, namespace: str, count: int) -> dict[str, ResolvedPod]:
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
    return {pod["status"]["podIP"]: resolve_pod(api, pod, pod["status"]["podIP"]) for pod in pods}


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


def _why(api: Api, namespace: str) -> str:
    """Where its pods stand, and what was said of them."""
    pods = pods_in(api, namespace)
    events = api.items(f"/api/v1/namespaces/{namespace}/events")
    rows = [
        f"{pod['metadata']['name']} {pod['status']['phase']} on {pod['spec'].get('nodeName')}"
        for pod in pods
    ]
    return "\n".join(rows + [f"{e['involvedObject']['name']}: {e.get('message')}" for e in events])
