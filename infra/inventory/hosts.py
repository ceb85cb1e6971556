"""A host that exists: how it is reached, and the facts that command lines need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

NameOrigin = Literal["inventory", "facts", "placeholder"]
"""Where the name of an interface or HCA comes from: written by people, found by `fab facts`, or made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryHost:
    """One host of an Ansible inventory.

    Args:
        name: the inventory's name; the plan's host name.
        machine: the inventory's name, where `name` is the plan's and another one; None else.
        groups: groups that list it, in file order (role names among them).
        address: `ansible_host`, where SSH connects and, unless `service_address` says otherwise,
            where its processes listen.
        service_address: `moe.address`: the address that peers and clients use.
        port: SSH port.
        user: SSH login, None for the operator's own name.
        private_key_file: identity, None for the agent's or the default ones.
        ssh_arguments: words of `ansible_ssh_common_args`: `-F FILE`, `-o Option=Value`, `-J HOST`.
        host_key: `moe.host_key`, the host's public key line (`ssh-ed25519 AAAA…`), None when known_hosts decides.
        interface: `moe.interface`, the network interface that carries `service_address`.
        rdma_devices: `moe.rdma_devices`, its rails, e.g. ("mlx5_0:1", …); () when not declared.
        mtu: `moe.mtu`, bytes that a packet to any peer may have, on the interface and the rails; None when not
            declared.
        nvlink_domain: `moe.nvlink_domain`, the NVLink domain (rack, UltraServer) of the host; None when not declared
            and not found.
        instance_id: `moe.instance_id`, the cloud's name of the machine.
        image_mirror: `moe.image_mirror`, a registry that has the images under their own names; None for theirs.
        image_archive: `moe.image_archive`, a tar on the host that `docker load` reads; it goes before the mirror.
        interface_origin: of `interface`.
        rdma_origin: of `rdma_devices`.
        domain_origin: of `nvlink_domain`.
    """

    name: str
    groups: tuple[str, ...]
    address: str
    service_address: str
    port: int
    user: str | None
    private_key_file: str | None
    ssh_arguments: tuple[str, ...]
    host_key: str | None
    interface: str
    rdma_devices: tuple[str, ...]
    instance_id: str | None
    image_mirror: str | None = None
    image_archive: str | None = None
    mtu: int | None = None
    nvlink_domain: str | None = None
    interface_origin: NameOrigin = "inventory"
    rdma_origin: NameOrigin = "inventory"
    domain_origin: NameOrigin = "inventory"
    machine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The hosts of one stack, in file order. `path` is None for documentation addresses.

    Args:
        members: names of hosts by group, each in the group's own order; a group without an entry is in file order.
    """

    path: str | None
    hosts: tuple[InventoryHost, ...]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def host(self, name: str) -> InventoryHost | None:
        """The host of that name, or None."""
        return next((host for host in self.hosts if host.name == name), None)


class HostFacts(NamedTuple):
    """What a process's command line takes from the host it runs on."""

    address: str
    interface: str
    rdma_devices: tuple[str, ...]


class AddressBook(Protocol):
    """Where hosts are. From an inventory a constant; on Kubernetes an expression for the pod."""

    @property
    def is_documentation(self) -> bool:
        """Whether addresses are examples from RFC 5737, not hosts that exist."""
        ...

    def address(self, of: str, *, seen_from: str) -> str:
        """The address of host `of` as a process on `seen_from` must write it."""
        ...

    def facts(self, host: str) -> HostFacts:
        """The facts of a host for its own processes."""
        ...
