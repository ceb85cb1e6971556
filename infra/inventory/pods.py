"""The address book of Kubernetes: names that exist before any pod does.

A LeaderWorkerSet of ours has our name, so its pods have, too. The sets of a DisaggregatedSet are named after a
revision: there each host has a service of its own, which finds its pod by labels.

Sources: kubernetes-sigs/lws v0.9.0 (pods `<set>-0`, `<set>-0-1`, …; a headless service of the set's name whose
addresses are published before pods are ready; sets of a DisaggregatedSet `<name>-<revision>-<role>`, with slices
`<name>-<slice>-<revision>-<role>`); kubernetes.io, dependent environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import StackError
from infra.inventory.hosts import HostFacts
from infra.spec.stack import Workload

POD_IP = "POD_IP"
# What a process binds and advertises: a name would be resolved by whoever reads it, and HCCL takes numbers alone.
OWN_ADDRESS = f"$({POD_IP})"
# The interface of a pod in the cluster's network, whatever the network plugin.
INTERFACE = "eth0"
ROUTER_HOST = "router"
EDGE_HOST = "edge"
# A StatefulSet's name and the hash of its revision share a label of 63 characters; workers' sets are `<set>-0`.
MAX_SET_NAME = 50
# What a DisaggregatedSet puts into the names of its sets: a slice and a revision of eight characters.
UNIT_INFIX = "-0-00000000"
_SET_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddresses:
    """Where pods are.

    Args:
        names: by plan host, the name under which every pod of the namespace resolves it.
        router: name of the router's service.
        edge: name of the edge's service.
    """

    names: Mapping[str, str]
    router: str
    edge: str
    is_documentation: bool = False

    def address(self, of: str, *, seen_from: str) -> str:
        """The name of a host's pod, the same from everywhere."""
        del seen_from
        fronts = {ROUTER_HOST: self.router, EDGE_HOST: self.edge}
        return fronts[of] if of in fronts else self.names[of]

    def facts(self, host: str) -> HostFacts:
        """What a pod knows of itself: its address is an expression that its environment answers."""
        del host
        return HostFacts(address=OWN_ADDRESS, interface=INTERFACE, rdma_devices=())


def pod_addresses(
    stack: str, groups: Sequence[tuple[str, Sequence[str]]], workload: Workload
) -> PodAddresses:
    """The pods of a stack, one per host.

    Args:
        stack: its name.
        groups: (`<role>/<replica>`, hosts in rank order) in plan order.
        workload: a LeaderWorkerSet per group, or one DisaggregatedSet for all.

    Raises:
        StackError: a name cannot be an object's, or two groups share a host.
    """
    names: dict[str, str] = {}
    for group, hosts in groups:
        for index, host in enumerate(hosts):
            if host in names:
                what = f"{host} serves {group} and another group; a pod has its node's devices to itself."
                raise StackError(f"stack {stack} placement", what, "Write placement: dedicated.")
            if workload == "leader-worker-set":
                names[host] = _pod_address(workload_name(stack, group), index)
            else:
                unit_name(stack, group.partition("/")[0])
                names[host] = host_service(stack, host)
    return PodAddresses(names=names, router=router_name(stack), edge=edge_name(stack))


def _pod_address(workload: str, index: int) -> str:
    """A pod of a set with one group, in the headless service of its set; the leader's name has no index."""
    leader = f"{workload}-0"
    return f"{leader}-{index}.{workload}" if index else f"{leader}.{workload}"


def host_service(stack: str, host: str) -> str:
    """The service that leads to one host of a stack in a DisaggregatedSet."""
    return f"{stack}-{host}"


def unit_name(stack: str, role: str) -> str:
    """The DisaggregatedSet of a stack.

    Raises:
        StackError: the names of the sets that are made from it would be none.
    """
    _refuse_name(stack, f"{stack}{UNIT_INFIX}-{role}")
    return stack


def workload_name(stack: str, group: str) -> str:
    """The LeaderWorkerSet of a group.

    Raises:
        StackError: the stack's name cannot be part of it.
    """
    name = f"{stack}-{group.replace('/', '-')}"
    _refuse_name(stack, name)
    return name


def _refuse_name(stack: str, name: str) -> None:
    if len(name) > MAX_SET_NAME or not _SET_NAME.fullmatch(name):
        what = (
            f"{name} would be the name of a LeaderWorkerSet and its service: lower-case letters, digits and `-`, "
            f"a letter first, at most {MAX_SET_NAME} characters."
        )
        raise StackError(f"stack {stack!r}", what, "Rename the stack file.")


def edge_name(stack: str) -> str:
    """The edge's Deployment and service."""
    return f"{stack}-edge"


def router_name(stack: str) -> str:
    """The router's Deployment and service."""
    return f"{stack}-router"
