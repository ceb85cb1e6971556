"""Rules about the edge: what it lets through, and whether clients' keys travel in the clear."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from infra.checks.entrances import is_stand_in
from infra.checks.view import Finding, PlanView
from infra.engines.routers import LOOPBACK
from infra.plan.edge import CERTIFICATE, KEYS, PRIVATE_KEY, is_control
from infra.plan.process import Process
from infra.spec.stack import KUBERNETES

_GIVE = "Write `edge.tls: {certificate: {file: PATH}, key: {file: PATH}}`"


def edge_paths_are_clients(view: PlanView) -> Iterator[Finding]:
    """No path that controls what serves is let through."""
    for index, path in enumerate(view.plan.edge.allow if view.plan.edge else ()):
        if is_control(path):
            what = f"{path} controls what serves, or is inference by another door; no client may reach it."
            fix = "Take it out of edge.allow."
            yield Finding(field=f"edge.allow.{index}", what=what, fix=fix)


def edge_secrets_are_there(view: PlanView) -> Iterator[Finding]:
    """An edge has keys to ask for, and a certificate where it says so."""
    if view.plan.edge is None:
        return
    is_told = view.surroundings.spec is not None  # of a stack without keys the compiler says so
    wanted = [
        *([] if is_told else [KEYS]),
        *((CERTIFICATE, PRIVATE_KEY) if view.plan.edge.tls == "given" else ()),
    ]
    for name in wanted:
        if name not in view.plan.secrets:
            what = f"The edge needs the secret {name}, and `secrets` does not name it."
            yield Finding(field="edge", what=what, fix="Name where it is read from.")


def edge_tls_is_said(view: PlanView) -> Iterator[Finding]:
    """On a public address somebody has decided about TLS."""
    for edge, where in _public_edges(view, "unsaid"):
        what = f"{edge.id} serves on {where}, and nothing says whether it speaks TLS."
        yield Finding(field="edge", what=what, fix=f"{_GIVE}, or `tls: none`.", process=edge.id)


def edge_is_not_in_clear(view: PlanView) -> Iterator[Finding]:
    """On a public address nobody on the way reads keys, prompts and answers."""
    for edge, where in _public_edges(view, "none"):
        what = f"{edge.id} serves without TLS on {where}: keys, prompts and answers travel in the clear."
        fix = f"{_GIVE}, or give the host a private address."
        yield Finding(field="edge.tls", what=what, fix=fix, process=edge.id)


def edge_is_not_passed_by(view: PlanView) -> Iterator[Finding]:
    """What stands behind the edge is dialled by the plan's own hosts alone."""
    if view.plan.edge is None or view.plan.firewall is not None or view.plan.platform in KUBERNETES:
        return
    for process in (*view.routers, *view.engines):
        address = view.addresses[process.host]
        is_open = process.endpoint is not None and LOOPBACK not in process.endpoint
        if is_open and not is_stand_in(address):
            what = f"{process.id} serves on {address}, too: whoever reaches its port goes round the edge."
            fix = "Write `firewall: plan`, or waive this where the network is closed to others."
            yield Finding(field="firewall", what=what, fix=fix, process=process.id)
            return


def _public_edges(view: PlanView, tls: str) -> Iterator[tuple[Process, str]]:
    """Edges on a public address, and in words where; in a cluster a Service has the address, and no other network."""
    if view.plan.edge is None or view.plan.edge.tls != tls or view.plan.platform in KUBERNETES:
        return
    for process in view.plan.processes:
        where = _where(view.addresses[process.host]) if process.kind == "edge" else None
        if where is not None:
            yield process, where


def _where(address: str) -> str | None:
    """A public address in words, or a name that may be of one; None for any other address."""
    try:
        return "a public address" if ipaddress.ip_address(address).is_global else None
    except ValueError:
        return None if address == "localhost" else f"{address}, which may be a public address"
