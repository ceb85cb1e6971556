"""Which hosts share an NVLink domain: a group of processes that shares memory over hosts never spans two."""

from __future__ import annotations

from collections.abc import Mapping

from infra.errors import Problem, ProblemsFound
from infra.plan.topology import Topology


def place_in_domains(topology: Topology, hosts_per_domain: int) -> Mapping[str, int]:
    """The domain of each host, by the host's name; domains are numbered from 0 and filled in the topology's order.

    A group goes into the first domain that has room for all of its hosts, so that a small group fills what a large
    one has left.

    Args:
        topology: the stack's groups and hosts.
        hosts_per_domain: what one domain holds.

    Raises:
        ProblemsFound: a group has more hosts than one domain.
    """
    found: dict[str, int] = {}
    left: list[int] = []
    for group in topology.groups:
        new = [host for host in dict.fromkeys(group.hosts) if host not in found]
        standing = {found[host] for host in group.hosts if host in found}
        rooms = sorted(standing) or range(len(left))
        domain = next((each for each in rooms if left[each] >= len(new)), None)
        if len(new) > hosts_per_domain or len(standing) > 1 or (domain is None and standing):
            raise ProblemsFound((_too_large(topology.stack, group.name, hosts_per_domain),))
        if domain is None:
            left.append(hosts_per_domain)
            domain = len(left) - 1
        found |= dict.fromkeys(new, domain)
        left[domain] -= len(new)
    return {host.name: found[host.name] for host in topology.hosts if host.name in found}


def _too_large(stack: str, group: str, hosts_per_domain: int) -> Problem:
    return Problem(
        rule="nvlink-domain",
        severity="error",
        file=f"stacks/{stack}.yaml",
        field="roles",
        what=f"{group} does not fit one NVLink domain of {hosts_per_domain} hosts with the groups beside it.",
        fix="Use fewer ranks per replica and more replicas, or placement: dedicated.",
    )
