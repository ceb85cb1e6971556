"""The deployment on the hosts that a task's options reach."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from infra.catalog.load import Catalog
from infra.inventory.hosts import InventoryHost
from infra.launch.deployment import Deployment, Limits, client_of
from infra.launch.fleet import Fleet, SystemClock
from infra.launch.secret import Secret
from infra.plan.compile import CompiledStack
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan
from infra.provision.secret_values import secret_values
from infra.render.declared_network import with_declared_network
from infra.render.host_state import host_state
from infra.render.image_origin import with_image_origin
from infra.render.items import HostState
from infra.render.wanted_tuning import Tuning
from infra.tasks.output import Output
from infra.tasks.stack_secrets import secrets_of


class RenderedState(Protocol):
    """Renders the host state of one host of a plan, or some groups of it."""

    def __call__(self, plan: Plan, host: str, /, *, tuning: Tuning, catalog: Catalog) -> HostState:
        """The state of that host."""
        ...


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
    enable = compiled.stack.spec.enabled_tuning
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
        StackError: the variable of a secret is not set.
        PrerequisiteError: the file of a secret is not there.
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
        StackError: the variable of a secret is not set.
        PrerequisiteError: the file of a secret is not there.
    """
    plan = chosen.plan
    values = secret_values(plan.secrets)
    secrets = secrets_of(values)
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
        client=client_of(values),
        say=output.message,
        nonce=os.urandom(8).hex(),
    )
    return deployment, secrets
