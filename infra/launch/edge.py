"""Starts a deployment's edge, or has one that runs read its secrets anew, and proves that requests go through it."""

from __future__ import annotations

from collections.abc import Mapping

from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.failures import refuse_not_taken, router_ended
from infra.launch.fleet import ask_all
from infra.launch.proof.router import ask_through
from infra.launch.unit_states import UnitState, read_units, units_request, why_ended
from infra.plan.process import Process


def open_edge(deployment: Deployment, edge: Process) -> Mapping[str, UnitState]:
    """Start the edge, or have it read anew what clients' keys and its certificate are; streams run on.

    Returns:
        Its unit, by process id.

    Raises:
        HostsFailed: its host cannot be asked.
        NotReady: it does not start, keeps what it read before, or passes nothing on.
    """
    known = deployment.units("edge")[edge.host]
    request = {edge.host: units_request("renew", list(known))}
    reports = ask_all(deployment.fleet, request, timeout_s=deployment.limits.ask_s)
    states = read_units(edge.host, reports[edge.host], known)
    refuse_not_taken(deployment, reports, states.values())
    message = reports[edge.host].get("message")
    if message and states[edge.id].active_state != "active":
        raise router_ended(deployment, edge, why_ended(states[edge.id]))
    if message:
        stack, unit = deployment.plan.stack, next(iter(known))
        what = "It does not read its keys or certificate anew, and serves by what it read before."
        fix = (
            f"`ssh {edge.host} sudo journalctl -u {unit} -n 20` says what is wrong with them. When that is mended, "
            f"`fab up --stack {stack}` again."
        )
        raise NotReady(edge.id, what, fix)
    answer = ask_through(deployment, edge)
    deployment.say(f"a request went through the edge: {answer}")
    return states
