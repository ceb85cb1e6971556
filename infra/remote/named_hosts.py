"""Hosts that the operator names on the command line: `user@host:port`, as Fabric's -H takes them."""

from __future__ import annotations

from collections.abc import Sequence

from infra.errors import StackError
from infra.inventory.hosts import InventoryHost
from infra.remote.known_hosts import SSH_PORT
from infra.remote.places import MAX_PORT, is_port, read_place

WHERE = "-H"


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
    user, _, place = word.rpartition("@")
    found = read_place(place)
    if found is None or "@" in user or word.startswith("@"):
        what = f"{word!r} is no host."
        raise StackError(WHERE, what, "Write user@host:port; user and port may be left out.")
    address, named = found
    port = SSH_PORT if named is None else named
    if not is_port(port):
        raise StackError(WHERE, f"{word!r}: {port} is no port.", f"Use 1 to {MAX_PORT}.")
    return InventoryHost(
        name=address if named is None else place,
        groups=(),
        address=address,
        service_address=address,
        port=port,
        user=user or None,
        private_key_file=None,
        ssh_arguments=tuple(part for path in identities for part in ("-i", path)),
        host_key=None,
        interface="",
        rdma_devices=(),
        instance_id=None,
    )
