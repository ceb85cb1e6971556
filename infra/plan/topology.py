"""Slots: which devices of which hosts each rank of each replica occupies; no addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from infra.catalog.schema import Accelerator
from infra.engines.settings import RoleSettings
from infra.inventory.pods import EDGE_HOST, ROUTER_HOST
from infra.spec.stack import KUBERNETES, Platform, RoleName, Workload

# By the name of the inventory's group `edge`, as `decode-0` is by `decode`.
OWN_EDGE_HOST = "edge-0"


class TopologyHost(NamedTuple):
    """A host that the deployment needs, `<role>-<n>` or, when shared, `host-<n>`."""

    name: str
    roles: tuple[RoleName, ...]
    accelerator: Accelerator


class Seat(NamedTuple):
    """The place of one process of a group.

    Args:
        host: host name.
        devices: device indices on the host, ascending.
        ranks: data-parallel ranks whose core runs here; () for a tensor-parallel follower.
        first_rank: the first rank that this seat belongs to, also for a follower; sorts seats.
        node: 0-based position of the host within the group.
        is_leader: whether it holds rank 0 on the group's first host.
    """

    host: str
    devices: tuple[int, ...]
    ranks: tuple[int, ...]
    first_rank: int
    node: int
    is_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One replica of a role: its settings and its seats, the leader first."""

    settings: RoleSettings
    replica: int
    seats: tuple[Seat, ...]

    @property
    def name(self) -> str:
        """`<role>/<replica>`."""
        return f"{self.settings.role}/{self.replica}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names in rank order, each once."""
        return tuple(dict.fromkeys(seat.host for seat in self.seats))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All hosts and groups of a deployment; enough to provision machines.

    Hosts are ordered by role, replica and rank; the router runs on the first, or in a pod of its own.

    Args:
        workload: what carries the groups where hosts are pods.
        has_own_edge: whether the edge has a host beside these.
    """

    stack: str
    platform: Platform
    workload: Workload
    hosts: tuple[TopologyHost, ...]
    groups: tuple[Group, ...]
    has_own_edge: bool = False

    @property
    def is_of_pods(self) -> bool:
        """Whether each host is a pod that Kubernetes starts."""
        return self.platform in KUBERNETES

    @property
    def router_host(self) -> str:
        """The first host of the first role; on Kubernetes none of them."""
        return ROUTER_HOST if self.is_of_pods else self.hosts[0].name

    @property
    def edge_host(self) -> str:
        """A pod of its own, a host of its own, or the router's."""
        if self.is_of_pods:
            return EDGE_HOST
        return OWN_EDGE_HOST if self.has_own_edge else self.router_host
