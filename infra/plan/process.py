"""The plan: every operating-system process of a deployment, and the hosts they run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from infra.catalog.schema import Mount
from infra.engines.reading import Bind
from infra.engines.settings import Origin
from infra.spec.edge import EdgeName
from infra.spec.stack import Platform, Runtime

ProcessKind = Literal["engine", "router", "edge"]
# Below it the kernel asks for a capability (ip_unprivileged_port_start of ip-sysctl, Linux 6.12).
FIRST_FREE_PORT = 1024


class Connect(NamedTuple):
    """A dial that the process's own command line orders: a port of another process."""

    name: str
    to: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One operating-system process.

    Args:
        id: `<host>/<index on the host>`, `router/0` for the router, `edge/0` for the edge.
        group: `<role>/<replica>`; a group is started, stopped and restarted as one.
        dp_ranks: data-parallel ranks whose engine core runs here; () for a follower, a router and an edge.
        devices: indices on the host, ascending.
        endpoint: URL that serves HTTP, None for a headless process.
        binds: what it listens on, effective numbers, in the order of name.
        env: one value per variable, without secrets.
        env_prepend: put before what the image already has, separated by `:`.
        argv: what runs inside the container or virtual environment, the program first.
        flag_origins: origin per argv flag as spelt there (`--port`); empty for an imported plan.
        env_origins: origin per variable of `env` and `env_prepend`; empty for an imported plan.
    """

    id: str
    kind: ProcessKind
    group: str
    host: str
    role: str
    replica: int
    dp_ranks: tuple[int, ...]
    devices: tuple[int, ...]
    endpoint: str | None
    binds: tuple[Bind, ...]
    connects: tuple[Connect, ...]
    env: Mapping[str, str]
    env_prepend: Mapping[str, str]
    mounts: tuple[Mount, ...]
    argv: tuple[str, ...]
    flag_origins: Mapping[str, Origin]
    env_origins: Mapping[str, Origin]

    @property
    def binds_low_port(self) -> bool:
        """Whether it listens where the kernel asks for a capability."""
        return any(bind.port < FIRST_FREE_PORT for bind in self.binds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHost:
    """A host of the plan.

    Args:
        num_devices: all that it has, used or idle.
        networks: of the catalogue, that an imported file says it has; its pod asks the network's device plugin, where
            it is a pod's.
    """

    name: str
    roles: tuple[str, ...]
    address: str
    accelerator: str
    num_devices: int
    networks: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of an inventory that it lies in: those of its roles, or `router` where it runs no engine."""
        return self.roles or ("router",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEngine:
    """The release that serves. `entrypoint` is what the image starts by itself, () for nothing."""

    name: str
    version: str
    image: str
    entrypoint: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firewall:
    """Hosts are closed by the plan; beside its own hosts these networks (`10.0.0.0/8`) may dial.

    Args:
        clients: what clients use.
        monitors: metrics.
    """

    clients: tuple[str, ...]
    monitors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdge:
    """What the edge lets through, beside what stands in its process and the plan's secrets.

    Args:
        tls: whether clients speak TLS: `given` with a certificate, `none` where the stack says so, else `unsaid`.
        allow: the paths that it lets through, exact.
        connections_per_address: connections of one address that run no request with a right key.
        connections_per_key: requests of one key that run at once.
    """

    name: EdgeName
    tls: Literal["given", "none", "unsaid"]
    allow: tuple[str, ...]
    connections_per_address: int
    connections_per_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a deployment runs; the document of `fab plan --json`.

    Hosts are in rank order; processes by role, replica, first rank, the leader first, then the router, the edge last.
    `secrets` maps the secret's name to where it is read from, never to a value. `firewall` is None where
    hosts are left as open as they are, `edge` without a front.
    """

    stack: str
    hash: str
    model: str
    checkpoint: str
    platform: Platform
    runtime: Runtime
    tuning: str
    engine: PlanEngine
    weights_path: str
    secrets: Mapping[str, Mapping[str, str]]
    hosts: tuple[PlanHost, ...]
    processes: tuple[Process, ...]
    capabilities: tuple[str, ...]
    firewall: Firewall | None = None
    edge: PlanEdge | None = None

    def host(self, name: str) -> PlanHost:
        """The host of that name.

        Raises:
            KeyError: the plan has no such host.
        """
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    @property
    def num_hosts(self) -> int:
        """Hosts with devices; on Kubernetes the router has a pod without any."""
        return sum(host.num_devices > 0 for host in self.hosts)

    @property
    def entrances(self) -> tuple[Process, ...]:
        """The processes that clients dial: the edge, else the router, else every engine that serves HTTP."""
        for kind in ("edge", "router", "engine"):
            found = tuple(p for p in self.processes if p.kind == kind and p.endpoint is not None)
            if found:
                return found
        return ()

    def on_host(self, name: str) -> tuple[Process, ...]:
        """The processes of one host, in plan order."""
        return tuple(process for process in self.processes if process.host == name)
