"""Pods as kubelets read them from the API server: variables resolved, volumes looked up, names as DNS answers them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.rehearsal.cluster.api import Api, Document

HEADLESS = "None"  # what such a service has for an address
_BY_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPod:
    """A pod that is bound to a node.

    Args:
        address: of its own.
        environment: of its first container.
        files: text by file, by volume, of volumes that are made of ConfigMaps and Secrets.
        document: as the API server has it.
    """

    name: str
    uid: str
    node: str
    address: str
    environment: Mapping[str, str]
    files: Mapping[str, Mapping[str, str]]
    document: Document

    @property
    def container(self) -> Document:
        """Its first container."""
        found: Document = self.document["spec"]["containers"][0]
        return found

    @property
    def told(self) -> dict[str, Any]:
        """What its launcher is told of its host: its name, its processes, and the peers that it awaits."""
        told = json.loads(self.files["launch"]["processes.json"])
        group = int(self.environment.get("MOE_GROUP_INDEX", "0"))
        place = group * told["group_size"] + int(self.environment["MOE_WORKER_INDEX"])
        host: dict[str, Any] = told["hosts"][place]
        return host


def resolve_pod(api: Api, pod: Document, address: str) -> ResolvedPod:
    """A pod as its kubelet starts it.

    Args:
        api: of its cluster.
        pod: as the API server has it.
        address: that it has, or is given.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    environment: dict[str, str] = {}
    for row in spec["containers"][0].get("env") or ():
        environment[row["name"]] = _value(api, row, pod, address, environment)
    return ResolvedPod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec["nodeName"],
        address=address,
        environment=environment,
        files={
            volume["name"]: found
            for volume in spec.get("volumes") or ()
            if (found := dict(_files(api, metadata["namespace"], volume)))
        },
        document=pod,
    )


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


def pods_in(api: Api, namespace: str) -> list[Document]:
    """Every pod of a namespace."""
    return api.items(f"/api/v1/namespaces/{namespace}/pods")


def is_of_a_daemon_set(pod: Document) -> bool:
    """Whether a pod tunes its node, and runs no process of the plan."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


def names_of(api: Api, namespace: str) -> dict[str, set[str]]:
    """Addresses by name, as the cluster's DNS answers (its source: services and endpoint slices).

    The name of a headless service leads to those of its pods that are ready, `<hostname>.<service>` to one; the
    endpoint controller calls all of them ready where `publishNotReadyAddresses` says so. The name of any other
    service leads to its own address, and to no pod's.
    Source: coredns/plugin/kubernetes/object/endpoint.go v1.12 (`endpointsliceReady`).
    """
    services = api.items(f"/api/v1/namespaces/{namespace}/services")
    own = {each["metadata"]["name"]: each["spec"].get("clusterIP") for each in services}
    found = {name: {address} for name, address in own.items() if address not in (None, HEADLESS)}
    for service, endpoint in endpoints_in(api, namespace):
        if (
            own.get(service) == HEADLESS
            and endpoint.get("conditions", {}).get("ready") is not False
        ):
            hostname = endpoint.get("hostname")
            for name in (service, *([f"{hostname}.{service}"] if hostname else [])):
                found.setdefault(name, set()).update(endpoint["addresses"])
    return found


def endpoints_in(api: Api, namespace: str) -> Iterator[tuple[str, Document]]:
    """Every endpoint of a namespace, behind the name of its service."""
    for piece in api.items(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"):
        service = piece["metadata"]["labels"]["kubernetes.io/service-name"]
        for endpoint in piece.get("endpoints") or ():
            yield service, endpoint


def _files(api: Api, namespace: str, volume: Document) -> Iterator[tuple[str, str]]:
    """Files of a volume that is made of objects."""
    core = f"/api/v1/namespaces/{namespace}"
    for part in (volume, *(volume.get("projected") or {}).get("sources", ())):
        if "configMap" in part:
            yield from api.ask("GET", f"{core}/configmaps/{part['configMap']['name']}")[
                "data"
            ].items()
    if "secret" in volume:
        secret = api.ask("GET", f"{core}/secrets/{volume['secret']['secretName']}")
        for name, value in secret["data"].items():
            yield name, base64.b64decode(value).decode()


def _value(api: Api, row: Document, pod: Document, address: str, known: Mapping[str, str]) -> str:
    """A variable of a container, as the kubelet resolves it."""
    if "valueFrom" not in row:
        return resolved(row.get("value", ""), known)
    source, metadata = row["valueFrom"], pod["metadata"]
    if "secretKeyRef" in source:
        where = source["secretKeyRef"]
        place = f"/api/v1/namespaces/{metadata['namespace']}/secrets/{where['name']}"
        return base64.b64decode(api.ask("GET", place)["data"][where["key"]]).decode()
    path = source["fieldRef"]["fieldPath"]
    plain = {"status.podIP": address, "spec.nodeName": pod["spec"]["nodeName"]}
    if path in plain:
        return str(plain[path])
    found = _BY_KEY.fullmatch(path)
    if found is None:
        raise AssertionError(path)  # nothing of ours asks for it
    return str(metadata[found[1]][found[2]])
