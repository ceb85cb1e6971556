"""What tuning wants of a host's network beyond its profile, because the inventory declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infra.inventory.hosts import InventoryHost
from infra.plan.process import Plan
from infra.render.items import HostState, Item

MTU_ID = "net.mtu"
IMEX_KIND = "imex-nodes"


def with_declared_network(
    state: HostState, plan: Plan, hosts: Mapping[str, InventoryHost]
) -> HostState:
    """A host's state with the MTU that its entry declares, and with the IMEX nodes of its NVLink domain alone.

    Args:
        state: of one host.
        plan: every host that is served.
        hosts: the inventory's entries, by the plan's names.
    """
    items = tuple(_item(item, state.host, plan, hosts) for item in state.items)
    return state if items == state.items else replace(state, items=items)


def domain_peers(plan: Plan, host: str, hosts: Mapping[str, InventoryHost]) -> tuple[str, ...]:
    """The plan's hosts of one accelerator that lie in a host's NVLink domain, itself among them, in plan order.

    Hosts of which no domain is declared or found count as one: what they are is for the preflight to see.
    """
    own, domain = plan.host(host), _domain(hosts, host)
    return tuple(
        other.name
        for other in plan.hosts
        if other.accelerator == own.accelerator and _domain(hosts, other.name) == domain
    )


def _item(item: Item, host: str, plan: Plan, hosts: Mapping[str, InventoryHost]) -> Item:
    if item.kind == IMEX_KIND and item.details.get("want") is not None:
        peers = domain_peers(plan, host, hosts)
        nodes = ",".join(plan.host(name).address for name in peers)
        return replace(item, details={**item.details, "want": nodes if len(peers) > 1 else None})
    entry = hosts.get(host)
    if item.id == MTU_ID and entry is not None and entry.mtu is not None:
        target = ",".join((entry.interface, *entry.rdma_devices))
        why = "The inventory declares it (moe.mtu): every host and switch between must carry it."
        details = {**item.details, "want": str(entry.mtu)}
        return replace(item, target=target, why=why, details=details)
    return item


def _domain(hosts: Mapping[str, InventoryHost], name: str) -> str | None:
    return hosts[name].nvlink_domain if name in hosts else None
