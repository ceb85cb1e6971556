"""The one export of every stack: the hosts, how each is reached, and where weights and router are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.plan.topology import Topology
from infra.spec.stack import StackSpec

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """How one host is reached, and what its command lines need.

    Args:
        address: where its processes listen, and where SSH connects.
        user: None for the operator's own login.
        proxy_command: what SSH dials through (`%p` is the port), None for a direct connection.
        host_key: its public key line, None when known_hosts decides.
    """

    address: str
    instance_id: str | None
    user: str | None
    proxy_command: str | None
    host_key: str | None
    interface: str
    rdma_devices: tuple[str, ...]


def inventory_document(
    topology: Topology,
    records: Mapping[str, HostRecord],
    *,
    weights: Mapping[str, object],
    spec: StackSpec,
    url: str | None,
) -> dict[str, object]:
    """The document that `fab inventory` reads, whatever the platform.

    Args:
        topology: its hosts are listed in order.
        records: by host name.
        weights: `storage` and `path`, and what a host needs to fetch or mount them.
        spec: of the stack: the port that clients use, and what they speak.
        url: of the load balancer before the router; None where clients call the router itself.
    """
    return {
        "schema": SCHEMA,
        "stack": topology.stack,
        "platform": topology.platform,
        "hosts": [
            {
                "name": host.name,
                "roles": list(host.roles),
                "address": records[host.name].address,
                "instance_id": records[host.name].instance_id,
                "user": records[host.name].user,
                "proxy_command": records[host.name].proxy_command,
                "host_key": records[host.name].host_key,
                "interface": records[host.name].interface,
                "rdma_devices": list(records[host.name].rdma_devices),
            }
            for host in topology.hosts
        ],
        "weights": dict(weights),
        "router": {
            "host": topology.router_host,
            "port": spec.port,
            "url": url or f"{spec.scheme}://{records[topology.router_host].address}:{spec.port}",
        },
    }
