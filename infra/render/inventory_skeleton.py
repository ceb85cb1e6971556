"""The inventory of hosts that exist, to be filled in: a place for each host that a stack needs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from infra.errors import StackError
from infra.plan.process import Plan

# An inventory with it is refused, at its line.
PLACEHOLDER = "<address of {}>"
_HEAD = """\
# Hosts of {stack}, each under the role that it serves: {hosts}.
# {todo}
# Names may be your own: the n-th host of a group then serves as <group>-<n>.
all:
  vars:
    ansible_user: root                     # the login; one that is not root needs sudo
    # ansible_port: 22
    # ansible_ssh_private_key_file: ~/.ssh/id_ed25519
    # ansible_ssh_common_args: -J user@bastion.example.com
    # moe:                                 # what is not written here, `fab facts` finds on the hosts
    #   interface: eth0                    # carries the address below
    #   rdma_devices: [mlx5_0:1, mlx5_1:1] # the rails, where hosts have any
    #   mtu: 9000                          # bytes that a packet to any peer may have
  children:
"""
_HOST = """\
        {name}:
          ansible_host: {address}
          # moe: {{address: 10.0.0.1}}       # in the place of the moe above: peers reach it by another address than SSH
"""
_TAIL = """\
    # spare:                               # machines that `fab replace-host` may take
    #   hosts:
    #     spare-0: {ansible_host: 192.0.2.99}
"""


def inventory_skeleton(plan: Plan, addresses: Sequence[str]) -> str:
    """The text of an inventory for a plan's hosts.

    Args:
        plan: on documentation addresses.
        addresses: one for each host, in the plan's order; () leaves a place for each.

    Raises:
        StackError: there are more or fewer addresses than hosts.
    """
    names = [host.name for host in plan.hosts]
    if addresses and len(addresses) != len(names):
        what = f"There are {len(addresses)} addresses; {plan.stack} has {len(names)} hosts."
        raise StackError("--addresses", what, f"Give them in this order: {', '.join(names)}.")
    words = addresses or [PLACEHOLDER.format(name) for name in names]
    places = {name: json.dumps(word) for name, word in zip(names, words, strict=True)}
    groups: dict[str, list[str]] = {}
    for host in plan.hosts:
        for role in host.roles:
            groups.setdefault(role, []).append(host.name)
    todo = "Read it through." if addresses else "Write an address for each, and read it through."
    text = _HEAD.format(stack=plan.stack, hosts=", ".join(names), todo=todo)
    placed: set[str] = set()
    for role, members in groups.items():
        text += f"    {role}:\n      hosts:\n"
        for name in members:
            # a host of two groups has its variables in the first
            text += (
                f"        {name}:\n"
                if name in placed
                else _HOST.format(name=name, address=places[name])
            )
        placed |= set(members)
    return text + _TAIL
