"""Which hosts have their devices ping which others' over the devices' own network; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

# Up to so many hosts every pair of a circle is pinged; a host of a larger one pings no more than these do.
ALL_PAIRS = 16


def ping_peers(hosts: Sequence[str], groups: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Whom each host pings, nearest first: in the circle of all hosts, and in that of each group.

    An answer needs the way there and the way back, so of two hosts one pings. In a circle of up to `ALL_PAIRS` these
    are all pairs; in a larger one, those at the distances 1, 2, 4 and so on: eight for each of 256 hosts, as of 16.

    Args:
        hosts: that answer, each once.
        groups: hosts of each group; those that are not among `hosts` are passed over.
    """
    found: dict[str, dict[str, None]] = {host: {} for host in hosts}
    among = ([host for host in group if host in found] for group in groups)
    for circle in (list(hosts), *among):
        for host, peer in _pairs(circle):
            if host not in found[peer]:
                found[host].setdefault(peer)
    return {host: tuple(peers) for host, peers in found.items() if peers}


def _pairs(circle: Sequence[str]) -> Iterator[tuple[str, str]]:
    half = len(circle) // 2
    near = range(1, half + 1)
    powers = (1 << power for power in range(half.bit_length()))
    for distance in near if len(circle) <= ALL_PAIRS else powers:
        for place, host in enumerate(circle):
            yield host, circle[(place + distance) % len(circle)]
