"""The address book of Kubernetes: names of LeaderWorkerSet pods, which exist before any pod does.

Sources: kubernetes-sigs/lws v0.9.0 (pods `<set>-0`, `<set>-0-1`, …; a headless service of the set's name whose
addresses are published before pods are ready); kubernetes.io, dependent environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import StackError
from infra.inventory.hosts import HostFacts

POD_IP = "POD_IP"
# What a process binds and advertises: a name would be resolved by whoever reads it, and HCCL takes numbers alone.
OWN_ADDRESS = f"$({POD_IP})"
# The interface of a pod in the cluster's network, whatever the network plugin.
INTERFACE = "eth0"
ROUTER_HOST = "router"
# A StatefulSet's name and the hash of its revision share a label of 63 characters; workers' sets are `<set>-0`.
MAX_SET_NAME = 50
_SET_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Where a plan host stands: the worker of that index of a LeaderWorkerSet with one group."""

    workload: str
    index: int

    @property
    def pod(self) -> str:
        """The pod's name; the leader's has no index."""
        leader = f"{self.workload}-0"
        return f"{leader}-{self.index}" if self.index else leader

    @property
    def address(self) -> str:
        """The pod's name in the headless service of its set, as every pod of the namespace resolves it."""
        return f"{self.pod}.{self.workload}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddresses:
    """Where pods are.

    Args:
        places: by plan host.
        router: name of the router's service.
    """

    places: Mapping[str, PodPlace]
    router: str
    is_documentation: bool = False

    def address(self, of: str, *, seen_from: str) -> str:
        """The name of a host's pod, the same from everywhere."""
        del seen_from
        return self.router if of == ROUTER_HOST else self.places[of].address

    def facts(self, host: str) -> HostFacts:
        """What a pod knows of itself: its address is an expression that its environment answers."""
        del host
        return HostFacts(address=OWN_ADDRESS, interface=INTERFACE, rdma_devices=())


def pod_addresses(stack: str, groups: Sequence[tuple[str, Sequence[str]]]) -> PodAddresses:
    """The pods of a stack: one LeaderWorkerSet per group, one pod per host.

    Args:
        stack: its name.
        groups: (`<role>/<replica>`, hosts in rank order) in plan order.

    Raises:
        StackError: a name cannot be an object's, or two groups share a host.
    """
    places: dict[str, PodPlace] = {}
    for group, hosts in groups:
        workload = workload_name(stack, group)
        for index, host in enumerate(hosts):
            if host in places:
                what = f"{host} serves {group} and another group; a pod has its node's devices to itself."
                raise StackError(f"stack {stack} placement", what, "Write placement: dedicated.")
            places[host] = PodPlace(workload=workload, index=index)
    return PodAddresses(places=places, router=router_name(stack))


def workload_name(stack: str, group: str) -> str:
    """The LeaderWorkerSet of a group.

    Raises:
        StackError: the stack's name cannot be part of it.
    """
    name = f"{stack}-{group.replace('/', '-')}"
    if len(name) > MAX_SET_NAME or not _SET_NAME.fullmatch(name):
        what = (
            f"{name} would be the name of a LeaderWorkerSet and its service: lower-case letters, digits and `-`, "
            f"a letter first, at most {MAX_SET_NAME} characters."
        )
        raise StackError(f"stack {stack!r}", what, "Rename the stack file.")
    return name


def router_name(stack: str) -> str:
    """The router's Deployment and service."""
    return f"{stack}-router"
