"""Stacks like the chosen one that would use every machine of what is bought, each placed before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.memory.block_layouts import RoleHosts, fuller_layouts
from infra.plan.compile import resolve_topology
from infra.plan.topology import Topology
from infra.render.purchases import FullerStack
from infra.spec.load import LoadedStack

SHOWN = 3
_Load = Callable[[tuple[str, ...]], LoadedStack]


def fuller_stacks(
    stack: LoadedStack, num_machines: int, load: _Load, catalog: Catalog
) -> tuple[FullerStack, ...]:
    """The stacks that fill what is bought, those most like the chosen one first; no more than three.

    Args:
        stack: the chosen one.
        num_machines: that are bought.
        load: the stack with further `FIELD=VALUE` words over it.
        catalog: what is true of the world.
    """
    _, topology = resolve_topology(stack, catalog)
    roles = _role_hosts(topology)
    layouts = fuller_layouts(roles, num_machines) if roles else ()
    return tuple(islice(_that_can_be_placed(stack, layouts, load, catalog), SHOWN))


def _role_hosts(topology: Topology) -> dict[str, RoleHosts]:
    """Replicas and hosts of each role; {} where replicas share hosts."""
    found: dict[str, RoleHosts] = {}
    for group in topology.groups:
        role = group.settings.role
        before = found[role].num_replicas if role in found else 0
        found[role] = RoleHosts(num_replicas=before + 1, hosts_per_replica=len(group.hosts))
    whole = sum(role.num_replicas * role.hosts_per_replica for role in found.values())
    return found if whole == len(topology.hosts) else {}


def _that_can_be_placed(
    stack: LoadedStack, layouts: tuple[Mapping[str, int], ...], load: _Load, catalog: Catalog
) -> Iterator[FullerStack]:
    """Those that are stacks: another number of replicas can break what is not about machines."""
    for layout in layouts:
        replicas = tuple(f"roles.{role}.replicas={count}" for role, count in layout.items())
        for words in (replicas, (*replicas, *_with_router(stack, catalog))):
            num_hosts = _num_hosts(words, load, catalog)
            if num_hosts is not None:
                yield FullerStack(words=words, num_hosts=num_hosts)
                break


def _with_router(stack: LoadedStack, catalog: Catalog) -> tuple[str, ...]:
    """A router in front of several endpoints, where the stack has none."""
    if stack.spec.router is not None:
        return ()
    return tuple(
        f"router.name={name}"
        for name in catalog.routers_for(stack.spec.engine.name)
        if not catalog.router(name).needs_disaggregation
    )[:1]


def _num_hosts(words: tuple[str, ...], load: _Load, catalog: Catalog) -> int | None:
    try:
        _, topology = resolve_topology(load(words), catalog)
    except InfraError:
        return None
    return len(topology.hosts)
