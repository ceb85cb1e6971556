"""Files, images and weights on hosts: looked at before anything changes, then brought about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infra.errors import HostsFailed, PrerequisiteError
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, ask_all, ask_until_known, rows_of
from infra.launch.secret import Secret, revealed
from infra.launch.unit_states import UnitState, read_units, units_request
from infra.plan.process import Process
from infra.render.host_state import Group, Item
from infra.render.reserved_ports import RESERVED_PORTS_ID, ports_at_risk
from infra.render.wanted_tuning import JEMALLOC_ID

MAX_NAMED = 3


def install(deployment: Deployment, secrets: Mapping[str, Secret], *, tunes: bool) -> None:
    """Bring every host to its files and images; nothing is changed when anything speaks against it.

    Args:
        deployment: the plan and its hosts.
        secrets: the stack's secrets by name; they travel beside the documents.
        tunes: whether the tuning profile is applied too.

    Raises:
        PrerequisiteError: weights are missing, a port is taken or not reserved, another release runs.
        HostsFailed: a host failed.
    """
    found = _observe(deployment, secrets)
    running = _running_units(deployment)
    _refuse_other_release(deployment, found, running)
    if not tunes:
        _refuse_unreserved_ports(deployment, found)
    _refuse_missing_weights(found)
    _refuse_taken_ports(deployment, running)
    _say_unusable_libraries(deployment, found)
    _apply(deployment, found, secrets, tunes=tunes)


def state_request(
    deployment: Deployment, items: Iterable[Item], mode: str, secrets: Mapping[str, Secret]
) -> dict[str, object]:
    """A request to check or apply items of one host's state."""
    return {
        "operation": "state",
        "mode": mode,
        "stack": deployment.plan.stack,
        "release": deployment.plan.hash,
        "items": [item.as_document() for item in items],
        "secrets": revealed(secrets),
    }


def _observe(
    deployment: Deployment, secrets: Mapping[str, Secret]
) -> dict[str, Sequence[Mapping[str, object]]]:
    """What every host is, item by item; changes nothing."""
    requests = {
        host: state_request(
            deployment,
            [
                item
                for item in state.items
                if item.group != "tuning" or item.id in (RESERVED_PORTS_ID, JEMALLOC_ID)
            ],
            "check",
            secrets,
        )
        for host, state in deployment.states.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    return {host: rows_of(report, "items") for host, report in reports.items()}


def _running_units(deployment: Deployment) -> dict[str, UnitState]:
    """The deployment's units that run already, by process id."""
    units = deployment.units()
    requests = {host: units_request("status", list(names)) for host, names in units.items()}
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    states = {
        process: state
        for host, report in reports.items()
        for process, state in read_units(host, report, units[host]).items()
    }
    return {process: state for process, state in states.items() if state.is_running}


def _refuse_other_release(
    deployment: Deployment,
    found: Mapping[str, Sequence[Mapping[str, object]]],
    running: Mapping[str, UnitState],
) -> None:
    """Files of a running deployment are not written over."""
    differing = [
        f"{host}:{row['id']}"
        for host, rows in found.items()
        for row in rows
        if row.get("group") == "files" and row.get("state") != "ok"
    ]
    if running and differing:
        names = sorted(running)
        raise PrerequisiteError(
            f"stack {deployment.plan.stack}",
            f"Another release of it runs ({_listed(names)}), and {len(differing)} files differ.",
            f"Run `fab down --stack {deployment.plan.stack}` first.",
        )


def _refuse_unreserved_ports(
    deployment: Deployment, found: Mapping[str, Sequence[Mapping[str, object]]]
) -> None:
    for host, rows in found.items():
        ports = sorted(ports_at_risk(deployment.plan.on_host(host)))
        reserved = any(row["id"] == RESERVED_PORTS_ID and row["state"] == "ok" for row in rows)
        if ports and not reserved:
            raise PrerequisiteError(
                host,
                f"Ports {_listed([str(port) for port in ports])} lie where the kernel takes ports for outgoing "
                "connections, and are not reserved.",
                f"Run `fab tune-hosts --stack {deployment.plan.stack}`.",
            )


def _say_unusable_libraries(
    deployment: Deployment, found: Mapping[str, Sequence[Mapping[str, object]]]
) -> None:
    """Engines start without a library that cannot be preloaded; the operator must not learn it from speed."""
    hosts_of: dict[str, list[str]] = {}
    for host, rows in found.items():
        for row in rows:
            if row["id"] == JEMALLOC_ID and row["state"] in {"blocked", "failed"}:
                hosts_of.setdefault(str(row["why"]), []).append(host)
    for why, hosts in hosts_of.items():
        deployment.say(f"{', '.join(hosts)}: {JEMALLOC_ID}: {why}")


def _refuse_missing_weights(found: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    problems = [
        (host, str(row["id"]), str(row["why"]))
        for host, rows in found.items()
        for row in rows
        if row.get("group") == "weights" and row.get("state") != "ok"
    ]
    if problems:
        hosts = ", ".join(dict.fromkeys(host for host, _, _ in problems))
        reasons = "; ".join(dict.fromkeys(f"{name}: {why}" for _, name, why in problems))
        raise PrerequisiteError(
            hosts,
            f"Weights are not as declared: {reasons}.",
            "Stage them, then run `fab up` again.",
        )


def _refuse_taken_ports(deployment: Deployment, running: Mapping[str, UnitState]) -> None:
    """Ports that somebody else listens on; our own running processes may."""
    awaited = {
        host: {port: process for process in processes for port in bound_ports(process)}
        for host in deployment.states
        if (processes := [p for p in deployment.plan.on_host(host) if p.id not in running])
    }
    requests = {
        host: {"operation": "listening", "ports": sorted(ports)} for host, ports in awaited.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    for host, report in reports.items():
        for row in rows_of(report, "listening"):
            port = int(str(row["port"]))
            holder = f"process {row['pid']} ({row['command']})" if row.get("pid") else "somebody"
            raise PrerequisiteError(
                host,
                f"Port {port}, which {awaited[host][port].id} needs, is taken by {holder}.",
                f"Stop it on {host}, or change the stack's ports.",
            )


def bound_ports(process: Process) -> list[int]:
    """Every port that a process binds."""
    return [bind.port + i for bind in process.binds for i in range(bind.count)]


def _apply(
    deployment: Deployment,
    found: Mapping[str, Sequence[Mapping[str, object]]],
    secrets: Mapping[str, Secret],
    *,
    tunes: bool,
) -> None:
    groups: tuple[Group, ...] = ("tuning", "files", "images") if tunes else ("files", "images")
    pulling = [
        host
        for host, rows in found.items()
        if any(row.get("group") == "images" and row.get("state") != "ok" for row in rows)
    ]
    if pulling:
        deployment.say(f"pulling {deployment.plan.engine.image} on {_listed(pulling)}")
    limit = deployment.limits.pull_s if pulling else deployment.limits.ask_s
    requests = {
        host: state_request(deployment, state.of_groups(*groups), "apply", secrets)
        for host, state in deployment.states.items()
    }
    reports = ask_until_known(deployment.fleet, requests, timeout_s=limit)
    _refuse_failed_items(reports)
    num = sum(
        row["state"] == "changed" for report in reports.values() for row in rows_of(report, "items")
    )
    deployment.say(f"installed on {len(reports)} hosts, {num} items changed")


def _refuse_failed_items(reports: Mapping[str, Report]) -> None:
    bad = [
        (host, f"{row['id']}: {row['why']}")
        for host, report in reports.items()
        for row in rows_of(report, "items")
        if row["state"] == "failed" or (row["state"] == "blocked" and row.get("group") != "tuning")
    ]
    if bad:
        hosts = ", ".join(dict.fromkeys(host for host, _ in bad))
        reasons = "; ".join(dict.fromkeys(why for _, why in bad))
        fix = "Mend it there and run the command again: what was written is recorded and can be taken back."
        raise HostsFailed(hosts, reasons, fix)


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
