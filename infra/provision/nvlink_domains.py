"""Which hosts share an NVLink domain: a group of processes that shares memory over hosts never spans two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import NoReturn

from infra.errors import ProblemsFound
from infra.plan.topology import Topology
from infra.provision.config_problems import stack_problem


def place_in_domains(
    topology: Topology, hosts_per_domain: int, standing: Mapping[str, int]
) -> Mapping[str, int]:
    """The domain of each host, by the host's name in the topology's order; domains are numbered from 0.

    Hosts of one group, and of groups that share hosts, have one domain. Those with hosts that stand come first, and go
    where these are. Then comes the largest, each into the first domain that has room for all of its hosts.

    Args:
        topology: the stack's groups and hosts.
        hosts_per_domain: what one domain holds.
        standing: domains of machines that stand, by host name; no machine moves to another one.

    Raises:
        ProblemsFound: hosts that belong together do not fit one domain, or stand in two.
    """
    found = {host.name: standing[host.name] for host in topology.hosts if host.name in standing}
    used = Counter(found.values())
    together = _hosts_together(topology)
    for hosts in sorted(together, key=lambda each: (found.keys().isdisjoint(each), -len(each))):
        new = [host for host in hosts if host not in found]
        own = {found[host] for host in hosts if host in found}
        if len(hosts) > hosts_per_domain or len(own) > 1:
            _refuse(topology, hosts, hosts_per_domain)
        rooms = own or count()
        domain = next((each for each in rooms if used[each] + len(new) <= hosts_per_domain), None)
        if domain is None:
            _refuse(topology, hosts, hosts_per_domain)
        found |= dict.fromkeys(new, domain)
        used[domain] += len(new)
    return {host.name: found[host.name] for host in topology.hosts}


def _hosts_together(topology: Topology) -> list[tuple[str, ...]]:
    """Hosts by the groups that join them, each host in one of the parts."""
    parts = {host.name: {host.name} for host in topology.hosts}
    for group in topology.groups:
        joined = set().union(*(parts[host] for host in group.hosts))
        parts |= dict.fromkeys(joined, joined)
    ordered = [host.name for host in topology.hosts]
    return list(dict.fromkeys(tuple(sorted(part, key=ordered.index)) for part in parts.values()))


def _refuse(topology: Topology, hosts: tuple[str, ...], hosts_per_domain: int) -> NoReturn:
    groups = ", ".join(each.name for each in topology.groups if set(each.hosts) & set(hosts))
    what = (
        f"The {len(hosts)} hosts of {groups} do not fit one NVLink domain of {hosts_per_domain}, or machines of "
        "theirs stand in several."
    )
    fix = "Use fewer ranks per replica and more replicas, or placement: dedicated."
    raise ProblemsFound((stack_problem("nvlink-domain", "roles", what, fix, topology.stack),))
