"""The hosts that a task's options reach, and the deployment on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from infra.catalog.load import Catalog
from infra.inventory.hosts import InventoryHost
from infra.launch.deployment import Deployment, Limits
from infra.launch.fleet import Fleet, SshFleet, SystemClock
from infra.launch.lease import FORCE, Claim, leased, this_owner
from infra.launch.secret import Secret
from infra.plan.compile import CompiledStack
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan
from infra.remote.connecting import SshOptions
from infra.remote.ssh_target import SshDefaults
from infra.render.declared_network import with_declared_network
from infra.render.host_state import HostState, host_state
from infra.render.image_origin import with_image_origin
from infra.render.wanted_tuning import Tuning
from infra.spec.load import find_stack
from infra.spec.stack import Tuning as SpecTuning
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.stack_options import chosen_name, needed_inventory
from infra.tasks.stack_secrets import read_secrets
from infra.tasks.sudo_password import sudo_password


class RenderedState(Protocol):
    """Renders the host state of one host of a plan, or some groups of it."""

    def __call__(self, plan: Plan, host: str, /, *, tuning: Tuning, catalog: Catalog) -> HostState:
        """The state of that host."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedStack:
    """Hosts that may hold a stack, whatever its file says by now.

    Args:
        fleet: for requests; it brings the lease along where the task holds one.
        streams: for streamed requests, which change nothing.
    """

    name: str
    hosts: tuple[str, ...]
    fleet: Fleet
    streams: SshFleet


@contextlib.contextmanager
def open_fleet(
    options: Options, hosts: Mapping[str, InventoryHost], *, asks_once: bool = False
) -> Iterator[SshFleet]:
    """The hosts over SSH; their connections are closed in the end, or after each answer.

    Raises:
        StackError: a host's ssh arguments are wrong, or the password for sudo is not to be had.
    """
    defaults = SshDefaults(
        accept_new=options.is_on("accept-new"), ssh_config=_operators_config(options)
    )
    chosen = SshOptions(defaults=defaults, sudo=sudo_password(options))
    fleet = SshFleet(hosts, chosen, asks_once=asks_once)
    try:
        yield fleet
    finally:
        fleet.close()


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
def open_recorded(options: Options, *, changes: str | None = None) -> Iterator[ReachedStack]:
    """The hosts of a stack's inventory, for tasks that act on what is recorded there.

    Args:
        options: of the task.
        changes: the command, when it changes the deployment: it then holds the lease.

    Raises:
        StackError: no stack or no inventory was named.
    """
    name = chosen_name(options)
    if options.text("inventory") is None:
        find_stack(options.text("file") or name)
    inventory = needed_inventory(options, name)
    hosts = {host.name: host for host in inventory.hosts}
    with open_fleet(options, hosts) as fleet:
        reached = ReachedStack(name=name, hosts=tuple(hosts), fleet=fleet, streams=fleet)
        if changes is None:
            yield reached
            return
        with holding_lease(options, changes, fleet, name, reached.hosts) as held:
            yield replace(reached, fleet=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPlan:
    """A plan on hosts that exist.

    Args:
        plan: compiled, or kept on hosts.
        enable: tuning items that the stack switches on beyond its profile.
        hosts: the inventory's entry of each plan host.
    """

    plan: Plan
    enable: tuple[str, ...]
    hosts: Mapping[str, InventoryHost]


def placed(compiled: CompiledStack) -> PlacedPlan:
    """A compiled stack on the hosts of its book."""
    chosen = compiled.stack.spec.tuning
    enable = chosen.enable if isinstance(chosen, SpecTuning) else ()
    return PlacedPlan(plan=compiled.plan, enable=enable, hosts=compiled.book.hosts)


def host_states(
    compiled: CompiledStack, catalog: Catalog, *, render: RenderedState = host_state
) -> dict[str, HostState]:
    """The host state of every host of a compiled stack, by name; see `placed_states`."""
    return placed_states(placed(compiled), catalog, render=render)


def placed_states(
    chosen: PlacedPlan, catalog: Catalog, *, render: RenderedState = host_state
) -> dict[str, HostState]:
    """The host state of every host of a plan, by name, with what the inventory declares of it.

    Args:
        chosen: the plan and its hosts.
        catalog: what is true of the world.
        render: how much of a host's state: all of it, or `tuning_state`.
    """
    plan, hosts = chosen.plan, chosen.hosts
    tuning = Tuning(profile=catalog.tuning(plan.tuning), enable=chosen.enable)
    states = {
        host.name: render(plan, host.name, tuning=tuning, catalog=catalog) for host in plan.hosts
    }
    return {
        name: with_image_origin(with_declared_network(state, plan, hosts), hosts[name])
        for name, state in states.items()
    }


def make_deployment(
    compiled: CompiledStack, catalog: Catalog, fleet: Fleet, output: Output
) -> tuple[Deployment, dict[str, Secret]]:
    """A deployment as tasks run it, and the stack's secrets.

    Raises:
        StackError: a secret is not there.
    """
    return deployment_of(placed(compiled), catalog, fleet, output)


def deployment_of(
    chosen: PlacedPlan, catalog: Catalog, fleet: Fleet, output: Output
) -> tuple[Deployment, dict[str, Secret]]:
    """A deployment of a plan, and its secrets.

    Args:
        chosen: the plan and its hosts.
        catalog: what is true of the world.
        fleet: the plan's hosts.
        output: where lines about the work go.

    Raises:
        StackError: a secret is not there.
    """
    plan = chosen.plan
    secrets = read_secrets(plan.secrets)
    key = secrets.get("api_key")
    deployment = Deployment(
        plan=plan,
        states=placed_states(chosen, catalog),
        declared=chosen.hosts,
        endpoints=read_endpoints(plan, catalog),
        fleet=fleet,
        clock=SystemClock(),
        limits=Limits(),
        headers={"Authorization": f"Bearer {key.reveal()}"} if key else {},
        say=output.message,
        nonce=os.urandom(8).hex(),
    )
    return deployment, secrets
