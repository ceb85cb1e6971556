"""Hosts of a task's inventory, met while the rest of the task's modules load and its stack is compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from infra.errors import InfraError
from infra.remote.connecting import SshOptions
from infra.remote.early_agents import EarlyAgents
from infra.remote.ssh_target import SshDefaults
from infra.tasks.choice import chosen_inventory, chosen_name
from infra.tasks.options import Options
from infra.tasks.sudo_password import ASK, FROM

# With these the operator is asked for something, or something is remembered here: not before the stack was judged.
LATER = ("accept-new", ASK, FROM)


@contextlib.contextmanager
def early_contact(options: Options, operations: Sequence[str]) -> Iterator[Options]:
    """The options of a task, with agents that are being started on the hosts of its inventory.

    What is wrong with the inventory, or with a host, the task finds and says in its own order.

    Args:
        options: of the task.
        operations: what its hosts are asked first.
    """
    early = _started(options, operations)
    if early is None:
        yield options
        return
    try:
        yield replace(options, early=early)
    finally:
        early.close()


def _started(options: Options, operations: Sequence[str]) -> EarlyAgents | None:
    if any(options.given.get(name) for name in LATER):
        return None
    with contextlib.suppress(InfraError):
        inventory = chosen_inventory(options, chosen_name(options))
        if inventory is not None:
            chosen = SshOptions(defaults=SshDefaults())
            return EarlyAgents(inventory.hosts, chosen, operations)
    return None
