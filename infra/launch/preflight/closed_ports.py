"""Which planned ports hosts cannot dial, asked when a start has failed: a firewall has no words of its own."""

from __future__ import annotations

from dataclasses import replace

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.answering import ask_once
from infra.launch.deployment import Deployment
from infra.launch.fleet import Request, ask_all
from infra.launch.preflight.dialing import planned_dials
from infra.launch.preflight.network_checks import find_unreachable
from infra.launch.preflight.observed import read_observed
from infra.launch.preflight.reach_report import read_reached
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.waves import REACH_S, reach_requests


def closed_ports(deployment: Deployment, catalog: Catalog) -> list[str]:
    """A sentence for each port that peers must dial and cannot, and what opens it.

    Nothing where hosts cannot be asked, or no host dials another one. Who listens is not disturbed; where nobody does,
    the agent does.
    """
    dials = planned_dials(deployment.plan)
    ports: dict[str, set[int]] = {}
    for dial in dials:
        ports.setdefault(dial.host, set()).add(dial.port)
    looks: dict[str, Request] = {
        host: {"operation": "listening", "ports": sorted(wanted)} for host, wanted in ports.items()
    }
    limit = deployment.limits.ask_s
    try:
        taken = ask_all(deployment.fleet, looks, timeout_s=limit) if looks else {}
        scene = Scene(
            plan=deployment.plan,
            catalog=catalog,
            depth="full",
            hosts={
                host: read_observed(
                    host, {}, sent_s=0.0, received_s=0.0, also={"listening": report}
                )
                for host, report in taken.items()
            },
            running=frozenset(),
            recorded={},
        )
        requests = reach_requests(scene, dials, deployment.nonce)
        reports = ask_once(deployment.fleet, requests, timeout_s=REACH_S + limit)
    except HostsFailed:
        return []
    found = find_unreachable(replace(scene, reached=read_reached(dials, reports)))
    return [
        f"{one.host}: {one.observed}. {one.fix}".rstrip(".")
        for one in found
        if one.severity == "block"
    ]
