"""Stands in for NVIDIA's DRA driver: devices of nodes that claims get, and a claim template for every ComputeDomain.

Source: NVIDIA/k8s-dra-driver-gpu, compute-domain-controller and its templates, read 22 November 2026. Left out: the
daemons of IMEX, which the real driver starts on the nodes of a domain.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import yaml

from infra.rehearsal.cluster.api import CONFLICT, NOT_FOUND, Api, Document, RefusedError
from infra.rehearsal.cluster.nodes import NodeGroup

DEFINITIONS = Path(__file__).with_name("compute_domain.yaml")
DOMAINS = "/apis/resource.nvidia.com/v1beta1/computedomains"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
FINALIZER = "resource.nvidia.com/computeDomain"
DRIVER = "compute-domain.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
_STOP_S = 2.0


class DomainDriver:
    """The driver's controller."""

    def __init__(self, api: Api) -> None:
        """Do nothing until `start`."""
        self._api = api
        arguments = (DOMAINS, self._handle)
        self._thread = threading.Thread(target=api.follow, args=arguments, daemon=True)

    def start(self) -> None:
        """Follow every ComputeDomain; its definition must have been made."""
        self._thread.start()

    def stop(self) -> None:
        """Wait for its end; the API server must be gone."""
        self._thread.join(_STOP_S)

    def _handle(self, event: str, domain: Document) -> None:
        if event == "DELETED":
            return
        try:
            self._settle(domain)
        except RefusedError as refused:
            # somebody was quicker: the next event tells what there is now
            if refused.code not in (NOT_FOUND, CONFLICT):
                raise

    def _settle(self, domain: Document) -> None:
        """Make the template of a domain that is new, and let one go that is deleted."""
        metadata = domain["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        # others change the list, too: whoever has seen an older one is refused
        seen = {"resourceVersion": metadata["resourceVersion"]}
        own = f"{_in_namespace(domain)}/computedomains/{metadata['name']}"
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        templates = (
            f"/apis/resource.k8s.io/v1/namespaces/{metadata['namespace']}/resourceclaimtemplates"
        )
        if "deletionTimestamp" in metadata:
            self._api.delete(f"{templates}/{name}")
            rest = [each for each in finalizers if each != FINALIZER]
            self._api.patch(own, {"metadata": {**seen, "finalizers": rest}})
        elif FINALIZER not in finalizers:
            self._api.patch(own, {"metadata": {**seen, "finalizers": [*finalizers, FINALIZER]}})
            self._api.create(templates, _claim_template(domain, name))


def definitions() -> Iterator[Document]:
    """What the driver's chart installs: the definition of ComputeDomain, and the class of its channels."""
    yield from yaml.safe_load_all(DEFINITIONS.read_text(encoding="utf-8"))


def channel_slices(group: NodeGroup) -> Iterator[Document]:
    """What the driver says of every node: a channel of shared memory, which one pod can have."""
    kind, number = {"string": "channel"}, {"int": 0}
    device = {"name": "channel-0", "attributes": {"type": kind, "id": number}}
    for name in group.names():
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{DRIVER}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [device],
            },
        }


def _claim_template(domain: Document, name: str) -> Document:
    uid = domain["metadata"]["uid"]
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": domain["spec"]["channel"]["allocationMode"],
    }
    opaque = {"driver": DRIVER, "parameters": parameters}
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": opaque}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "labels": {FINALIZER: uid}},
        "spec": {"spec": {"devices": devices}},
    }


def _in_namespace(domain: Document) -> str:
    return f"/apis/resource.nvidia.com/v1beta1/namespaces/{domain['metadata']['namespace']}"
