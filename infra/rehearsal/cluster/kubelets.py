"""What kubelets would tell the API server: a pod runs when everything that it names is there, and ends when told to.

No container is started. A pod whose ConfigMaps, Secrets or claims are missing stays `Pending`, as a real one does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

from infra.rehearsal.cluster.api import Api, Document, RefusedError

PODS = "/api/v1/pods?fieldSelector=spec.nodeName!="
RETRY_S = 0.2


class Kubelets:
    """The kubelets of all simulated nodes."""

    def __init__(self, api: Api) -> None:
        """Do nothing until `start`."""
        self._api = api
        self._lock = threading.Lock()
        self._num_addresses = 0
        self._waiting: dict[str, Document] = {}  # by uid: pods of which something is missing
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=api.follow, args=(PODS, self._handle), daemon=True),
            threading.Thread(target=self._retry, daemon=True),
        ]

    def start(self) -> None:
        """Follow every pod that is bound to a node."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; the API server must be gone, or watches end in minutes only."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(RETRY_S * 10)

    def missing(self, pod: Document) -> list[str]:
        """What a pod names that is not there: `ConfigMap x`, `Secret y`, `key k of Secret y`, `claim z`."""
        found = [*self._absent(pod)]
        return found + [f"claim {name}" for name in self._unallocated(pod)]

    def _absent(self, pod: Document) -> Iterator[str]:
        """Objects, and keys of objects, that a pod mounts or takes variables from, and that are not there."""
        core = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        for kind, collection, name, key in _named(pod["spec"]):
            found = self._api.get(f"{core}/{collection}/{name}")
            if found is None:
                yield f"{kind} {name}"
            elif key is not None and key not in (found.get("data") or {}):
                yield f"key {key} of {kind} {name}"

    def _retry(self) -> None:
        """Look again at pods that wait."""
        while not self._is_over.wait(RETRY_S):
            with self._lock:
                waiting = list(self._waiting.values())
            for pod in waiting:
                with contextlib.suppress(OSError):
                    self._start_pod(pod)

    def _handle(self, event: str, pod: Document) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            self._waiting.pop(uid, None)
        if event == "DELETED":
            return
        if "deletionTimestamp" in pod["metadata"]:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self._api.delete(pod_path(pod), options)
        elif pod["status"].get("phase") == "Pending":
            self._start_pod(pod)

    def _start_pod(self, pod: Document) -> None:
        """Say that a pod runs, once nothing is missing."""
        uid = pod["metadata"]["uid"]
        if self.missing(pod):
            with self._lock:
                self._waiting[uid] = pod
            return
        with self._lock:
            self._waiting.pop(uid, None)
            self._num_addresses += 1
            number = self._num_addresses
        address = f"10.244.{number // 250}.{number % 250 + 1}"
        status = {"status": running_status(pod["spec"], address)}
        # somebody may have deleted it meanwhile
        with contextlib.suppress(RefusedError):
            self._api.patch(f"{pod_path(pod)}/status", status, kind="strategic")

    def _unallocated(self, pod: Document) -> Iterator[str]:
        """Claims of a pod that have no device yet, or are not reserved for it."""
        made = {
            each["name"]: each.get("resourceClaimName")
            for each in pod["status"].get("resourceClaimStatuses") or ()
        }
        base = f"/apis/resource.k8s.io/v1/namespaces/{pod['metadata']['namespace']}/resourceclaims"
        for each in pod["spec"].get("resourceClaims") or ():
            name = each.get("resourceClaimName") or made.get(each["name"])
            claim = self._api.get(f"{base}/{name}") if name else None
            status = (claim or {}).get("status") or {}
            users = {user["uid"] for user in status.get("reservedFor") or ()}
            if "allocation" not in status or pod["metadata"]["uid"] not in users:
                yield each["name"]


def _named(spec: Document) -> Iterator[tuple[str, str, str, str | None]]:
    """Kind, collection, name and wanted key of every object that a pod mounts or takes variables from."""
    for volume in spec.get("volumes") or ():
        for part in (volume, *(volume.get("projected") or {}).get("sources", ())):
            if "configMap" in part:
                yield "ConfigMap", "configmaps", part["configMap"]["name"], None
        if "secret" in volume:
            yield "Secret", "secrets", volume["secret"]["secretName"], None
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            yield "claim", "persistentvolumeclaims", name, None
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for row in container.get("env") or ():
            source = row.get("valueFrom") or {}
            if "secretKeyRef" in source:
                wanted = source["secretKeyRef"]
                yield "Secret", "secrets", wanted["name"], wanted["key"]


def running_status(spec: Document, address: str, *, is_ready: bool = True) -> Document:
    """The status of a pod whose containers have all started; `is_ready` says whether they answer."""
    answers = str(is_ready)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    over = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": [
            {"type": kind, "status": status, "lastTransitionTime": now}
            for kind, status in (
                ("Initialized", "True"),
                ("ContainersReady", answers),
                ("Ready", answers),
            )
        ],
        "initContainerStatuses": [
            {**_container(each), "state": {"terminated": over}}
            for each in spec.get("initContainers") or ()
        ],
        "containerStatuses": [
            {
                **_container(each),
                "ready": is_ready,
                "started": is_ready,
                "state": {"running": {"startedAt": now}},
            }
            for each in spec["containers"]
        ],
    }


def _container(container: Document) -> Document:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": True,
        "started": True,
        "restartCount": 0,
    }


def pod_path(pod: Document) -> str:
    """Where the API server has a pod."""
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
