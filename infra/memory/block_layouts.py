"""Which numbers of replicas would use every machine of what is bought."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHosts:
    """One role of a plan: its replicas, and the hosts of each."""

    num_replicas: int
    hosts_per_replica: int


def fuller_layouts(
    roles: Mapping[str, RoleHosts], num_machines: int
) -> tuple[Mapping[str, int], ...]:
    """Replicas by role that use more machines than now: as many as there are, or as come nearest to it.

    Args:
        roles: by name, one or two; each keeps at least one replica.
        num_machines: that are bought.

    Returns:
        the layouts whose roles share the machines most nearly as they do now, first; () when what
        is bought is used already, or nothing larger fits.
    """
    used = sum(role.num_replicas * role.hosts_per_replica for role in roles.values())
    found = {
        counts: total
        for counts in _counts(roles, num_machines)
        if used < (total := _total(roles, counts)) <= num_machines
    }
    most = max(found.values(), default=0)
    fullest = [counts for counts, total in found.items() if total == most]
    now = tuple(role.num_replicas for role in roles.values())
    fullest.sort(key=lambda counts: (_shift(roles, now, counts), counts))
    return tuple(dict(zip(roles, counts, strict=True)) for counts in fullest)


def _counts(roles: Mapping[str, RoleHosts], num_machines: int) -> Iterator[tuple[int, ...]]:
    """Numbers of replicas: of all roles but the last any, of that as many as the others leave room for."""
    *others, last = (role.hosts_per_replica for role in roles.values())
    for counts in itertools.product(*(range(1, num_machines // size + 1) for size in others)):
        left = num_machines - sum(map(operator.mul, counts, others))
        if left >= last:
            yield (*counts, left // last)


def _total(roles: Mapping[str, RoleHosts], counts: tuple[int, ...]) -> int:
    return sum(
        count * role.hosts_per_replica for count, role in zip(counts, roles.values(), strict=True)
    )


def _shift(
    roles: Mapping[str, RoleHosts], before: tuple[int, ...], after: tuple[int, ...]
) -> float:
    """How far the roles' shares of the machines move, 0 for not at all."""
    moves = (
        new * role.hosts_per_replica / _total(roles, after)
        - old * role.hosts_per_replica / _total(roles, before)
        for old, new, role in zip(before, after, roles.values(), strict=True)
    )
    return round(sum(abs(move) for move in moves), 9)  # so that equal shifts are equal
