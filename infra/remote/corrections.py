"""Where an operator corrects how a host is reached: in the inventory, on the command line, or at a bastion's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

ToldBy = Literal["inventory", "command line", "bastion"]


class Corrections(NamedTuple):
    """What to correct, in the words of whoever says how a host is reached.

    Args:
        address: where the connection goes.
        user: the login.
        private_key: the key that it offers.
    """

    address: str
    user: str
    private_key: str


CORRECTIONS: Mapping[ToldBy, Corrections] = {
    "inventory": Corrections(
        address="ansible_host or the bastion's name",
        user="ansible_user",
        private_key="ansible_ssh_private_key_file",
    ),
    "command line": Corrections(
        address="the name in -H",
        user="the user in -H USER@HOST",
        private_key="-i (or IdentityFile in the ssh_config)",
    ),
    "bastion": Corrections(
        address="the name in -J (or HostName in the ssh_config)",
        user="the user in -J USER@HOST (or User in the ssh_config)",
        private_key="the key of the hosts behind it (or IdentityFile in the ssh_config)",
    ),
}
