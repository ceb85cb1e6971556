"""The hosts that a task's options reach, and the deployment on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.inventory.hosts import InventoryHost
from infra.launch.deployment import Deployment, Limits
from infra.launch.endpoints import read_endpoints
from infra.launch.fleet import Fleet, SshFleet, SystemClock
from infra.launch.secret import Secret
from infra.plan.compile import CompiledStack
from infra.remote.connecting import SshOptions
from infra.remote.ssh_target import SshDefaults
from infra.render.host_state import HostState, Tuning, host_state
from infra.spec.load import find_stack
from infra.spec.stack import Tuning as SpecTuning
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.stack_options import chosen_name, needed_inventory
from infra.tasks.stack_secrets import read_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedStack:
    """Hosts that may hold a stack, whatever its file says by now."""

    name: str
    hosts: tuple[str, ...]
    fleet: Fleet


@contextlib.contextmanager
def open_fleet(options: Options, hosts: Mapping[str, InventoryHost]) -> Iterator[SshFleet]:
    """The hosts over SSH; their connections are closed in the end.

    Raises:
        StackError: a host's ssh arguments are wrong.
    """
    defaults = SshDefaults(accept_new=options.is_on("accept-new"))
    fleet = SshFleet(hosts, SshOptions(defaults=defaults))
    try:
        yield fleet
    finally:
        fleet.close()


@contextlib.contextmanager
def open_recorded(options: Options) -> Iterator[ReachedStack]:
    """The hosts of a stack's inventory, for tasks that act on what is recorded there.

    Raises:
        StackError: no stack or no inventory was named.
    """
    name = chosen_name(options)
    if options.text("inventory") is None:
        find_stack(options.text("file") or name)
    inventory = needed_inventory(options, name)
    hosts = {host.name: host for host in inventory.hosts}
    with open_fleet(options, hosts) as fleet:
        yield ReachedStack(name=name, hosts=tuple(hosts), fleet=fleet)


def host_states(compiled: CompiledStack, catalog: Catalog) -> dict[str, HostState]:
    """The host state of every host of a plan, by name."""
    chosen = compiled.stack.spec.tuning
    enable = chosen.enable if isinstance(chosen, SpecTuning) else ()
    tuning = Tuning(profile=catalog.tuning(compiled.plan.tuning), enable=enable)
    return {
        host.name: host_state(compiled.plan, host.name, tuning=tuning, catalog=catalog)
        for host in compiled.plan.hosts
    }


def make_deployment(
    compiled: CompiledStack, catalog: Catalog, fleet: Fleet, output: Output
) -> tuple[Deployment, dict[str, Secret]]:
    """A deployment as tasks run it, and the stack's secrets.

    Raises:
        StackError: a secret is not there.
    """
    secrets = read_secrets(compiled.plan.secrets)
    key = secrets.get("api_key")
    deployment = Deployment(
        plan=compiled.plan,
        states=host_states(compiled, catalog),
        endpoints=read_endpoints(compiled.plan, catalog),
        fleet=fleet,
        clock=SystemClock(),
        limits=Limits(),
        headers={"Authorization": f"Bearer {key.reveal()}"} if key else {},
        say=output.message,
        nonce=os.urandom(8).hex(),
    )
    return deployment, secrets
