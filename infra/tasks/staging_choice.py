"""What `stage-weights` and `verify --deep` read of a stack before they look at its checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Fleet, SystemClock
from infra.launch.lease import this_owner
from infra.launch.staging.order import Staging
from infra.launch.staging.plan import SHARED_STORAGE, Checkpoint, wanted_checkpoints
from infra.plan.compile import CompiledStack
from infra.spec.stack import Weights
from infra.spec.weights_source import FIELD, parse_weights_source, refuse_plain_token
from infra.tasks.output import Output
from infra.tasks.reached_hosts import PlacedPlan, host_states, placed_states
from infra.tasks.stack_secrets import read_secrets


def chosen_checkpoints(
    compiled: CompiledStack, catalog: Catalog, source: str | None = None
) -> tuple[Checkpoint, ...]:
    """Every checkpoint and draft of a stack.

    Args:
        compiled: the stack.
        catalog: knows their repositories.
        source: of the command line; None for the stack's.

    Raises:
        StackError: a checkpoint is not in the catalogue, the source is none, or it would show a token.
    """
    weights = compiled.stack.spec.weights
    if source is not None:
        refuse_plain_token(
            parse_weights_source(source, "--source"), compiled.plan.secrets, "--source"
        )
    return wanted_checkpoints(
        host_states(compiled, catalog),
        catalog,
        weights.source if source is None else source,
        is_shared=weights.storage in SHARED_STORAGE,
        where=FIELD if source is None else "--source",
    )


def open_staging(chosen: PlacedPlan, fleet: Fleet, output: Output) -> Staging:
    """One run of the work on the checkpoints of a plan."""
    return Staging(
        fleet=fleet,
        addresses={name: host.service_address for name, host in chosen.hosts.items()},
        secrets=read_secrets(chosen.plan.secrets),
        pace=Pace(limits=Limits(), clock=SystemClock(), say=output.message),
        operator=this_owner().operator,
        token=os.urandom(16).hex(),
    )


def staging_of(
    chosen: PlacedPlan, weights: Weights, catalog: Catalog, fleet: Fleet, output: Output
) -> tuple[tuple[Checkpoint, ...], Staging]:
    """The checkpoints that a plan's own hosts hold, wherever they came from, and a run to look at them.

    Args:
        chosen: the plan and its hosts.
        weights: what the stack says of where they lie.
        catalog: knows their repositories.
        fleet: the hosts.
        output: of the task.
    """
    found = wanted_checkpoints(
        placed_states(chosen, catalog),
        catalog,
        weights.source,
        is_shared=weights.storage in SHARED_STORAGE,
        where=FIELD,
    )
    checkpoints = tuple(replace(one, source=replace(one.source, host=None)) for one in found)
    return checkpoints, open_staging(chosen, fleet, output)
