"""A deployment on scripted hosts that `up` has brought up."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

Running = tuple[Deployment, ScriptedFleet]


def make_running(stack: str, catalog: Catalog) -> Running:
    """The deployment of a stack, every rank proven and watched, and its fleet."""
    deployment, fleet, _ = make_deployment(stack, catalog)
    bring_up(deployment, {}, tunes=False)
    return deployment, fleet
