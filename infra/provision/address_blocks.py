"""Whom a block of addresses means: a network of somebody's, or the world."""

from __future__ import annotations

import ipaddress

# The largest that one owner was ever given; IPv6's private addresses are a larger block.
_LARGEST_OWN = {4: 8, 6: 16}
_PRIVATE_IPV6 = ipaddress.IPv6Network("fc00::/7")


def is_the_world(block: str) -> bool:
    """Whether a block is everybody, or so large a part of the internet that it is no network of one owner.

    Args:
        block: as the cloud takes it; what is no block of addresses is not the world.
    """
    try:
        network = ipaddress.ip_network(block, strict=False)
    except ValueError:
        return False
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_PRIVATE_IPV6):
        return False
    return network.prefixlen < _LARGEST_OWN[network.version]
