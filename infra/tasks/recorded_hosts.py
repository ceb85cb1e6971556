"""The hosts that a task's options reach, and what tasks need that act on what is recorded there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.inventory.hosts import InventoryHost
from infra.launch.fleet import Fleet, SshFleet, SystemClock
from infra.launch.lease import FORCE, Claim, leased, this_owner
from infra.remote.connecting import SshOptions
from infra.remote.ssh_target import SshDefaults
from infra.spec.stack_files import find_stack
from infra.tasks.choice import chosen_name, needed_inventory
from infra.tasks.host_names import serving
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.sudo_password import sudo_password


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedStack:
    """Hosts that may hold a stack, whatever its file says by now.

    Args:
        fleet: for requests; it brings the lease along where the task holds one.
        streams: for streamed requests, which change nothing.
        serving: which host serves as which of the plan's, where the inventory has other names.
    """

    name: str
    hosts: tuple[str, ...]
    serving: Mapping[str, InventoryHost]
    fleet: Fleet
    streams: SshFleet


def machines(reached: ReachedStack) -> dict[str, str]:
    """The inventory's name of each host, by the plan's; where nothing tells them apart, by itself."""
    named = {plan: host.machine or plan for plan, host in reached.serving.items()}
    return named | {host: host for host in reached.hosts if host not in named.values()}


@contextlib.contextmanager
def open_fleet(
    options: Options,
    hosts: Mapping[str, InventoryHost],
    output: Output,
    *,
    asks_once: bool = False,
) -> Iterator[SshFleet]:
    """The hosts over SSH; their connections are closed in the end, or after each answer.

    Args:
        options: of the task.
        hosts: by the names that the task calls them.
        output: of the task; commands on these hosts are completed there from here on.
        asks_once: each connection is closed after one answer.

    Raises:
        StackError: a host's ssh arguments are wrong, or the password for sudo is not to be had.
    """
    output.complete.reach(hosts)
    early = options.early if options.early is not None and options.early.are_waiting else None
    chosen = _ssh_options(options) if early is None else early.options
    fleet = SshFleet(hosts, chosen, asks_once=asks_once, early=early)
    try:
        yield fleet
    finally:
        fleet.close()


def _ssh_options(options: Options) -> SshOptions:
    """How a task's options reach its hosts.

    Raises:
        StackError: the password for sudo is not to be had.
    """
    defaults = SshDefaults(
        told_by="inventory" if options.text("hosts") is None else "command line",
        accept_new=options.is_on("accept-new"),
        ssh_config=_operators_config(options),
    )
    return SshOptions(defaults=defaults, sudo=sudo_password(options))


def _operators_config(options: Options) -> Path | None:
    """The ssh_config of -S; for hosts named with -H the operator's own, as ssh and Fabric read it."""
    named = options.text("ssh-config")
    if named is not None:
        return Path(named).expanduser()
    own = Path("~/.ssh/config").expanduser()
    return own if options.text("hosts") is not None and own.is_file() else None


@contextlib.contextmanager
def holding_lease(
    options: Options, command: str, fleet: Fleet, stack: str, hosts: Sequence[str]
) -> Iterator[Fleet]:
    """The fleet for a task that changes a deployment: nobody else changes it meanwhile.

    The task's first request must be a look at its hosts. `--force lease` takes the lease from whoever holds it.

    Raises:
        PrerequisiteError: by the first request, somebody else holds the lease.
    """
    claim = Claim(
        stack=stack,
        hosts=hosts,
        command=command,
        owner=this_owner(),
        forces=FORCE in options.words("force"),
    )
    with leased(fleet, claim, SystemClock()) as held:
        yield held


@contextlib.contextmanager
def open_recorded(
    options: Options, output: Output, *, changes: str | None = None
) -> Iterator[ReachedStack]:
    """The hosts of a stack's inventory, for tasks that act on what is recorded there.

    Args:
        options: of the task.
        output: of the task.
        changes: the command, when it changes the deployment: it then holds the lease.

    Raises:
        StackError: no stack or no inventory was named.
    """
    name = chosen_name(options)
    if options.text("inventory") is None:
        find_stack(options.text("file") or name)
    inventory = needed_inventory(options, name)
    hosts = {host.name: host for host in inventory.hosts}
    served = serving(options, inventory)
    output.complete.reach(served)
    with open_fleet(options, hosts, output) as fleet:
        reached = ReachedStack(
            name=name, hosts=tuple(hosts), serving=served, fleet=fleet, streams=fleet
        )
        if changes is None:
            yield reached
            return
        with holding_lease(options, changes, fleet, name, reached.hosts) as held:
            yield replace(reached, fleet=held)
