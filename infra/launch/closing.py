"""Hosts are closed by the plan: each loads its table for a trial, and keeps it when everybody has got through.

Nothing here is needed to get out again: a host whose trial nobody ends takes the table back by itself. So whatever goes
wrong on the way, a connection, a dial, this program or its machine, leaves every host as it was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from infra.agent.kinds.firewall import TRIAL_S
from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.answering import PRESENCE
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, ask_all, rows_of
from infra.launch.name_lists import clauses, listed
from infra.launch.preflight.closed_ports import look_at_listeners
from infra.launch.preflight.mutual_dials import dial_each_other, reaching_s
from infra.launch.preflight.network_checks import find_unreachable
from infra.render.dialing import planned_dials


def waiting_hosts(
    deployment: Deployment, found: Mapping[str, Sequence[Mapping[str, object]]]
) -> list[str]:
    """The hosts that have not got their table yet.

    Args:
        deployment: the plan and its hosts.
        found: the items of each host.
    """
    return [
        host
        for host, state in deployment.states.items()
        if state.of_groups("firewall")
        and any(row.get("group") == "firewall" and row["state"] != "ok" for row in found[host])
    ]


def close_hosts(
    deployment: Deployment, catalog: Catalog, hosts: Sequence[str], running: frozenset[str]
) -> None:
    """Have hosts load their tables, reach each of them anew, have all hosts dial each other, and keep the tables.

    Args:
        deployment: the plan and its hosts.
        catalog: what is true of the world.
        hosts: those whose table is not as wanted; () for none.
        running: processes that run.

    Raises:
        HostsFailed: a table is not loaded, a host is not reached on a new connection, or hosts cannot dial what they
            must. Every host takes its table back then.
    """
    if not hosts:
        return
    trial_s = round(TRIAL_S + reaching_s(len(deployment.states)))
    limit = deployment.limits.ask_s
    requests = {host: _loading(deployment, host, trial_s) for host in hosts}
    try:
        _refuse_unloaded(ask_all(deployment.fleet, requests, timeout_s=limit))
        deployment.say(f"{listed(hosts)} closed by the plan, for a trial of {trial_s} s")
        deployment.hang_up()
        ask_all(deployment.fleet, dict.fromkeys(hosts, PRESENCE), timeout_s=limit)
        _refuse_unreachable(deployment, catalog, running)
    except HostsFailed:
        back = f"within {trial_s} s every host takes its own back by itself"
        deployment.say(f"nobody keeps the tables: {back}")
        raise
    keep = {"operation": "firewall", "stack": deployment.plan.stack}
    ask_all(deployment.fleet, dict.fromkeys(hosts, keep), timeout_s=limit)
    deployment.say(f"{listed(hosts)} reached through the new tables, which are kept")


def _loading(deployment: Deployment, host: str, trial_s: int) -> dict[str, object]:
    items = deployment.states[host].of_groups("firewall")
    timed = [replace(one, details={**one.details, "trial_s": trial_s}) for one in items]
    return {
        "operation": "state",
        "mode": "apply",
        "stack": deployment.plan.stack,
        "release": deployment.plan.hash,
        "items": [item.as_document() for item in timed],
    }


def _refuse_unloaded(reports: Mapping[str, Report]) -> None:
    bad = {
        host: f"{row['why']}"
        for host, report in reports.items()
        for row in rows_of(report, "items")
        if row["state"] not in {"ok", "changed"}
    }
    if bad:
        what = f"{clauses(list(dict.fromkeys(bad.values())))}."
        raise HostsFailed(", ".join(bad), what, "Mend it there and run the command again.")


def _refuse_unreachable(deployment: Deployment, catalog: Catalog, running: frozenset[str]) -> None:
    """Have hosts dial all that they will dial; engines that load open theirs later, and are left alone."""
    dials = planned_dials(deployment.plan)
    if not dials:
        return
    scene = replace(look_at_listeners(deployment, catalog, dials), running=running)
    scene = dial_each_other(deployment, scene, dials)
    troubles = [one for one in find_unreachable(scene) if one.severity == "block"]
    if troubles:
        what = f"{clauses([one.observed for one in troubles])}."
        raise HostsFailed(
            ", ".join(dict.fromkeys(one.host for one in troubles)), what, troubles[0].fix
        )
