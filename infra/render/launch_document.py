"""What another back end than `fab` needs beside host states: who serves as which host, what to start and ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.engines.serving import HEALTH, MODELS
from infra.plan.process import Plan, Process
from infra.render.host_paths import unit_name
from infra.render.host_state import HostState
from infra.render.reserved_ports import RESERVED_PORTS_ID, ports_at_risk

SCHEMA_VERSION = 1
PROBE_S = 3.0
# An engine is healthy or not; a router that wants a key of clients answers all the same.
ANSWERS: Mapping[str, tuple[str, int]] = {"engine": (HEALTH, 200), "router": (MODELS, 499)}


def stack_document(plan: Plan, inventory_names: Mapping[str, str] | None) -> dict[str, object]:
    """What concerns the stack as a whole.

    Args:
        plan: the plan.
        inventory_names: what the inventory calls each plan host; None when the plan's addresses are
            examples, so that nothing may be brought to hosts.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "release": plan.hash,
        "model": plan.model,
        "secrets": {name: dict(reference) for name, reference in plan.secrets.items()},
        "hosts": None
        if inventory_names is None
        else {inventory_names[host.name]: host.name for host in plan.hosts},
    }


def launch_document(plan: Plan, state: HostState) -> dict[str, object]:
    """How the processes of one host are started, and when they count as ready.

    `needed` are the items that must be as wanted before anything is installed; `ports` must be free
    while nothing of the stack runs there; a probe is good when its status is from 200 to `last_status`.
    """
    processes = plan.on_host(state.host)
    needed = [item.id for item in state.of_groups("weights")]
    needed += [RESERVED_PORTS_ID] if ports_at_risk(processes) else []
    return {
        "schema_version": SCHEMA_VERSION,
        "needed": needed,
        "ports": sorted(
            bind.port + i
            for process in processes
            for bind in process.binds
            for i in range(bind.count)
        ),
        **{
            kind: _started(plan.stack, [p for p in processes if p.kind == kind], *ANSWERS[kind])
            for kind in ANSWERS
        },
    }


def _started(
    stack: str, processes: Sequence[Process], path: str, last_status: int
) -> dict[str, object]:
    return {
        "units": {unit_name(stack, process): process.id for process in processes},
        "probes": [
            {
                "id": process.id,
                "steps": [{"method": "GET", "url": process.endpoint + path, "timeout_s": PROBE_S}],
            }
            for process in processes
            if process.endpoint is not None
        ],
        "last_status": last_status,
    }
