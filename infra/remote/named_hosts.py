"""Hosts that the operator names on the command line: `user@host:port`, as Fabric's -H takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.errors import StackError
from infra.inventory.hosts import InventoryHost
from infra.remote.known_hosts import SSH_PORT

WHERE = "-H"
MAX_PORT = 65535
# `host`, `host:port`, `[address]:port`; an address of IPv6 without brackets has no port.
_PLACE = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^\]\s]+\]|[^\[\]@\s:]+)(?::(?P<port>\d+))?"
)


def named_hosts(text: str, identities: Sequence[str] = ()) -> dict[str, InventoryHost]:
    """The hosts of a list with commas, by the name that messages give them, in their order.

    Args:
        text: the list.
        identities: private key files that are tried for each of them.

    Raises:
        StackError: a word that is no host, or a host named twice.
    """
    hosts: dict[str, InventoryHost] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        host = _named_host(word, identities)
        if host.name in hosts:
            raise StackError(WHERE, f"{host.name} is named twice.", "Name each host once.")
        hosts[host.name] = host
    if not hosts:
        raise StackError(WHERE, "It names no host.", "Write -H host1,host2.")
    return hosts


def _named_host(word: str, identities: Sequence[str]) -> InventoryHost:
    found = _PLACE.fullmatch(word)
    is_bare_v6 = word.rpartition("@")[2].count(":") > 1 and "[" not in word
    if is_bare_v6:
        found = re.fullmatch(
            r"(?:(?P<user>[^@\s]+)@)?(?P<host>[0-9a-fA-F:.%a-z]+)(?P<port>(?!))?", word
        )
    if found is None:
        raise StackError(
            WHERE, f"{word!r} is no host.", "Write user@host:port; user and port may be left out."
        )
    address, port = found["host"].strip("[]"), int(found["port"] or SSH_PORT)
    if not 0 < port <= MAX_PORT:
        raise StackError(WHERE, f"{word!r}: {port} is no port.", f"Use 1 to {MAX_PORT}.")
    return InventoryHost(
        name=f"{found['host']}:{port}" if found["port"] else address,
        groups=(),
        address=address,
        service_address=address,
        port=port,
        user=found["user"],
        private_key_file=None,
        ssh_arguments=tuple(part for path in identities for part in ("-i", path)),
        host_key=None,
        interface="",
        rdma_devices=(),
        instance_id=None,
    )
