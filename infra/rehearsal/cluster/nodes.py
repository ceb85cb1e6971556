"""Simulated nodes: what a vendor's device plugin and feature discovery would say of real ones; no machine is behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.catalog.schema import Accelerator, PodAccess
from infra.rehearsal.cluster.api import Document
from infra.rehearsal.cluster.programs import VERSION

# A compute tray has more; none of it is asked for by more than one pod of ours.
_UNTOLD = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeProxyVersion", "operatingSystem", "architecture"),
)
# Label of every node here.
SIMULATED = "moe-infra/simulated"
# What the plugin of RDMA cards calls them here.
FABRIC = "rdma/hca"
CPUS, MEMORY, MAX_PODS = "144", "940Gi", "110"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one kind.

    Args:
        accelerator: whose devices each has, under the name of the vendor's device plugin; None without devices.
        count: how many.
        domain: value of the label that names their NVLink domain; None where the accelerator has none.
        labels: that a stack's `node_selector` chooses them by.
        resources: of the fabric, by name; of the devices, where nodes have fewer than they should.
        taints: that their owner has put there; documents of the API.
    """

    name: str
    accelerator: Accelerator | None
    count: int
    domain: str | None
    labels: Mapping[str, str]
    resources: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]

    @property
    def has_domain(self) -> bool:
        """Whether devices of several of its nodes share memory."""
        return self.pod is not None and self.pod.domain_label is not None

    @property
    def pod(self) -> PodAccess | None:
        """How pods get its devices; None without devices."""
        if self.accelerator is None:
            return None
        if self.accelerator.pod is None:
            raise AssertionError(
                self.accelerator.id
            )  # the catalogue knows how pods get each device
        return self.accelerator.pod

    def devices(self) -> dict[str, str]:
        """How many each node has, by the name of their resource."""
        if self.pod is None or self.accelerator is None:
            return {}
        return {self.pod.resource: str(self.accelerator.devices_per_host)}

    def names(self) -> list[str]:
        """Of its nodes."""
        return [f"{self.name}-{number}" for number in range(self.count)]


def node_documents(group: NodeGroup) -> Iterator[Document]:
    """Every node of a group, with the status that its kubelet would have sent."""
    labels = {**group.labels, "kubernetes.io/os": "linux", SIMULATED: "true"}
    pod = group.pod
    if pod is not None and pod.domain_label is not None and group.domain is not None:
        labels[pod.domain_label] = group.domain
    resources = {
        "cpu": CPUS,
        "memory": MEMORY,
        "pods": MAX_PODS,
        "ephemeral-storage": "1Ti",
        "hugepages-2Mi": "16Gi",
        **group.devices(),
        **group.resources,
    }
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Simulated",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    for name in group.names():
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
            "spec": {"taints": [dict(each) for each in group.taints]},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [ready],
                "nodeInfo": {**dict.fromkeys(_UNTOLD, ""), "kubeletVersion": f"v{VERSION}"},
            },
        }
