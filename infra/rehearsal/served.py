"""Which simulated engine answered: read from the simulators' own journals, never from production code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from infra.plan.process import Plan
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.simulated_hosts import REQUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One answered request. `t` is the host's clock in seconds."""

    t: float
    process: str
    role: str
    request_id: str


def read_served(lab: Lab, plan: Plan) -> tuple[Served, ...]:
    """Every request that engines answered, by time."""
    found = []
    for host in plan.hosts:
        by_port = {
            bind.port + i: process
            for process in plan.on_host(host.name)
            for bind in process.binds
            if bind.name == "http"
            for i in range(bind.count)
        }
        for line in lab.read_file(host.name, REQUESTS).decode().splitlines():
            entry = json.loads(line)
            process = by_port.get(entry.get("port"))
            if process is not None:
                found.append(
                    Served(
                        t=float(entry["t"]),
                        process=process.id,
                        role=process.role,
                        request_id=str(entry.get("request_id", "")),
                    )
                )
    return tuple(sorted(found, key=lambda served: served.t))


def last_by_role(served: tuple[Served, ...]) -> Mapping[str, str]:
    """The process of each role that answered last: the two halves of the request through the router."""
    return {entry.role: entry.process for entry in served}
