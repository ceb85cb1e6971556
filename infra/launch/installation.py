"""Files, images and weights on hosts: looked at before anything changes, then brought about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.answering import AnsweringFleet, read_each
from infra.launch.closing import close_hosts, waiting_hosts
from infra.launch.deployment import Deployment, Pace
from infra.launch.fleet import Report, ask_all, reports_along, rows_of
from infra.launch.handover import Look, look_at, look_requests, read_look, take_back
from infra.launch.name_lists import listed
from infra.launch.preflight.gate import Gate, find_unfit, refuse_silent
from infra.launch.preflight.waves import beside, look
from infra.launch.refusals import (
    find_hurtful_reload,
    find_masked,
    find_other_release,
    find_unclosable,
    refuse_together,
)
from infra.launch.releases import HASH_SHOWN
from infra.launch.replacement import Replacement, plan_replacement
from infra.launch.secret import Secret, revealed
from infra.launch.sharing import find_shared, find_unlike, records_of
from infra.launch.take_down import STOP_ORDER, stop_role, take_down
from infra.launch.unit_states import UnitState, read_units, units_request
from infra.render.host_paths import UNIT_FOLDER, watch_unit
from infra.render.items import Group, Item
from infra.render.kept_release import kept_document
from infra.render.release_record import Release
from infra.render.reserved_ports import RESERVED_PORTS_ID
from infra.render.wanted_tuning import JEMALLOC_ID

# The agent's name for a reload of systemd that would hurt somebody else's containers (agent/reload_guard.py).
RELOAD = "daemon-reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Hosts that nothing speaks against.

    Args:
        found: the items of each host.
        replacement: what there is of another release.
        running: the deployment's units that run, by process id.
        look: the deployment as its hosts had it.
        is_old: whether minutes have passed since.
    """

    found: Mapping[str, Sequence[Mapping[str, object]]]
    replacement: Replacement
    running: Mapping[str, UnitState]
    look: Look
    is_old: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the deployment runs, and nobody would start it: then only this command changes that."""
        return not self.running and not self.look.watched and not self.is_old

    @property
    def lacking_images(self) -> list[str]:
        """The hosts where an image is still to be brought."""
        return [
            host
            for host, rows in self.found.items()
            if any(row.get("group") == "images" and row.get("state") != "ok" for row in rows)
        ]


def install(
    deployment: Deployment,
    secrets: Mapping[str, Secret],
    *,
    tunes: bool,
    replaces: bool = False,
    gate: Gate | None = None,
) -> Look:
    """Bring every host to its files and images; nothing is changed when anything speaks against it.

    Args:
        deployment: the plan and its hosts.
        secrets: the stack's secrets by name; they travel beside the documents.
        tunes: whether the tuning profile is applied too.
        replaces: whether groups of another release that run are stopped for this one.
        gate: how hosts are judged first; None knows no facts file.

    Returns:
        The deployment as its hosts then have it.

    Raises:
        PrerequisiteError: another release runs, another stack has a device or a port, or a check of the light
            preflight blocks.
        HostsFailed: a host failed.
    """
    judged = judge_hosts(deployment, secrets, tunes=tunes, replaces=replaces, gate=gate)
    if stopping := judged.replacement.stopping(judged.running):
        deployment.agree(stopping)
    deployment.decided()
    judged = bring_images(deployment, judged, secrets)
    make_way(deployment, judged)
    look = apply_state(deployment, judged, secrets, tunes=tunes)
    catalog = gate.catalog if gate is not None else Catalog()
    waiting = waiting_hosts(deployment, judged.found)
    close_hosts(deployment, catalog, waiting, frozenset(judged.running))
    return look


def judge_hosts(
    deployment: Deployment,
    secrets: Mapping[str, Secret],
    *,
    tunes: bool,
    replaces: bool,
    gate: Gate | None,
) -> Judged:
    """Look at hosts and refuse what speaks against an installation; changes nothing. See `install`.

    Raises:
        PrerequisiteError: something does.
        HostsFailed: a host cannot be asked.
    """
    gate = gate or Gate()
    states = state_checks(deployment, secrets)
    answering = AnsweringFleet(deployment.fleet)
    asking = replace(deployment, fleet=answering)
    looked = look(asking, gate.catalog, "light", gate.recorded, states=states)
    reports = looked.states
    found = {host: rows_of(report, "items") for host, report in reports.items()}
    records = read_each(answering, reports, records_of)
    stack = deployment.plan.stack
    own = {host: stacks[stack] for host, stacks in records.items() if stack in stacks}
    scene = beside(looked.scene, looked.scene.running, own)
    shared, reload = find_shared(deployment.plan, records), find_hurtful_reload(found)
    shared += [*find_unlike(deployment.plan, records), *find_unclosable(found)]
    masked = find_masked(looked.units)
    away = replace(scene, away=answering.away)
    refuse_silent(deployment, away, tunes=tunes, also=[*shared, *masked, *reload])
    replacement = plan_replacement(deployment, own, reports)
    running = running_units(deployment, own, looked.units)
    other = [] if replaces else find_other_release(deployment, replacement, running)
    unfit = find_unfit(deployment, beside(looked.scene, running, own), tunes=tunes)
    refuse_together([*shared, *other, *masked, *reload, *unfit])
    _say_unusable_libraries(deployment, found)
    _say_unfinished(deployment, reports)
    return Judged(
        found=found,
        replacement=replacement,
        running=running,
        look=read_look(deployment, looked.told),
    )


def bring_images(deployment: Deployment, judged: Judged, secrets: Mapping[str, Secret]) -> Judged:
    """Bring images that hosts lack while what is to be replaced serves on: that takes longest, and fills disks.

    No process that runs is another one by it. Files are not written ahead: a watcher that restarts a group meanwhile
    would start it from them.

    Returns:
        The hosts as they then are.

    Raises:
        HostsFailed: an image cannot be brought, or a host cannot be asked; what ran does so still.
    """
    pulling = judged.lacking_images
    if not pulling:
        return judged
    deployment.say(f"pulling {deployment.plan.engine.image} on {listed(pulling)}")
    requests = {
        host: state_request(
            deployment, deployment.states[host].of_groups("images"), "apply", secrets
        )
        for host in pulling
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.pull_s)
    _refuse_failed_items(reports)
    brought = {
        host: [
            *(row for row in judged.found[host] if row.get("group") != "images"),
            *({**row, "state": "ok"} for row in rows_of(report, "items")),
        ]
        for host, report in reports.items()
    }
    return replace(judged, found={**judged.found, **brought}, is_old=True)


def changes_under_watchers(deployment: Deployment, judged: Judged) -> bool:
    """Whether files are to change of hosts where a watcher may be at work."""
    unit = f"file:{UNIT_FOLDER}/{watch_unit(deployment.plan.stack)}"
    rows = [row for listed_rows in judged.found.values() for row in listed_rows]
    is_there = any(row["id"] == unit and row["before"] is not None for row in rows)
    return is_there and any(row["group"] == "files" and row["state"] != "ok" for row in rows)


def make_way(deployment: Deployment, judged: Judged) -> None:
    """Have nobody but this command start or stop processes, and stop those of groups that change.

    Raises:
        HostsFailed: a host cannot be asked, or a process does not stop.
    """
    if changes_under_watchers(deployment, judged):
        # nobody starts or stops a group while files change; `start` hands over again
        take_back(deployment)
    _make_way(deployment, judged.replacement, judged.running)


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
        "allow": [RELOAD] if RELOAD in deployment.forces else [],
    }


def state_checks(
    deployment: Deployment, secrets: Mapping[str, Secret]
) -> dict[str, dict[str, object]]:
    """The request to each host that checks it item by item, and tells which releases are there."""
    return {
        host: {
            **state_request(
                deployment,
                [
                    item
                    for item in state.items
                    if item.group != "tuning" or item.id in (RESERVED_PORTS_ID, JEMALLOC_ID)
                ],
                "check",
                secrets,
            ),
            "tells_releases": True,
            "prunes": True,
            "recorded_kinds": state.kinds_of("tuning"),
        }
        for host, state in deployment.states.items()
    }


def running_units(
    deployment: Deployment,
    before: Mapping[str, Release],
    known: Mapping[str, UnitState] | None = None,
) -> dict[str, UnitState]:
    """Units of the deployment, as it is wanted and as it is recorded, that run; by process id.

    Args:
        deployment: as it is wanted.
        before: the recorded release of each host.
        known: the states of the wanted units, where they were asked for before.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    wanted = deployment.units()
    units: dict[str, dict[str, str]] = {}
    for host in deployment.states:
        here = wanted.get(host, {})
        recorded = {p.unit: p.id for p in before[host].processes} if host in before else {}
        asked = {**recorded, **here}
        if known is not None:
            asked = {unit: process for unit, process in asked.items() if unit not in here}
        if asked or known is None:
            units[host] = asked
    requests = {host: units_request("status", list(names)) for host, names in units.items()}
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    states = dict(known or {})
    for host, report in reports.items():
        states.update(read_units(host, report, units[host]))
    return {process: state for process, state in states.items() if state.is_running}


def _say_unfinished(deployment: Deployment, reports: Mapping[str, Report]) -> None:
    begun = {host: str(r["unfinished"]) for host, r in reports.items() if r.get("unfinished")}
    for release in dict.fromkeys(begun.values()):
        hosts = [host for host, name in begun.items() if name == release]
        deployment.say(
            f"release {release[:HASH_SHOWN]} was not installed to the end on {listed(hosts)}"
        )


def _make_way(
    deployment: Deployment, replacement: Replacement, running: Mapping[str, UnitState]
) -> None:
    """Stop the groups that change, and clear hosts that are not used any more."""
    pace = Pace(limits=deployment.limits, clock=deployment.clock, say=deployment.say)
    stopping, names = replacement.releases(running), replacement.stopping(running)
    if names:
        old = sorted({release.release[:HASH_SHOWN] for release in stopping.values()})
        deployment.say(f"replacing {listed(names)} of release {', '.join(old)}")
    for role in STOP_ORDER:
        stop_role(deployment.fleet, stopping, role, pace)
    is_other = any(r.release != deployment.plan.hash for r in replacement.before.values())
    for host in (*deployment.leaving, *(deployment.spares if is_other else ())):
        try:
            take_down(deployment.fleet, [host], deployment.plan.stack, pace)
        except HostsFailed as error:
            deployment.say(
                f"{host} is left as it is: {error} What was started there may start again with it: "
                "`fab down` with an inventory that lists it alone clears it."
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


def apply_state(
    deployment: Deployment,
    judged: Judged,
    secrets: Mapping[str, Secret],
    *,
    tunes: bool,
) -> Look:
    """Bring hosts that were judged to their files and images, and keep the release there.

    Where nothing runs that could end meanwhile, nobody looks at the units a second time, unless it takes minutes.

    Returns:
        The deployment as its hosts then have it.

    Raises:
        HostsFailed: an item failed, or a host cannot be asked.
    """
    groups: tuple[Group, ...] = ("tuning", "files", "images") if tunes else ("files", "images")
    pulling = judged.lacking_images
    limit = deployment.limits.pull_s if pulling else deployment.limits.ask_s
    looks = {} if judged.is_idle or pulling else look_requests(deployment)
    requests = {
        host: {
            **state_request(deployment, state.of_groups(*groups), "apply", secrets),
            "prunes": True,
            "spares": [item.id for item in state.of_groups("firewall")],
            "withdraws": tunes,
            "also": [looks[host]] if host in looks else [],
            "keep": {
                "hash": deployment.plan.hash,
                "document": kept_document(deployment.plan, state.enable),
            },
        }
        for host, state in deployment.states.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=limit)
    _refuse_failed_items(reports)
    num = sum(
        row["state"] == "changed" for report in reports.values() for row in rows_of(report, "items")
    )
    deployment.say(f"installed on {len(reports)} hosts, {num} items changed")
    if pulling:  # that takes minutes: what was seen before them is old
        return look_at(deployment)
    if judged.is_idle:
        return judged.look
    seen = {host: reports_along(host, report) for host, report in reports.items() if host in looks}
    return read_look(deployment, {host: along[0] for host, along in seen.items()})


def _refuse_failed_items(reports: Mapping[str, Report]) -> None:
    bad = [
        (host, f"{row['id']}: {row['why']}")
        for host, report in reports.items()
        for row in rows_of(report, "items")
        if row["state"] == "failed"
    ]
    # what was left out because of a failed one says nothing new
    bad = bad or [
        (host, f"{row['id']}: {row['why']}")
        for host, report in reports.items()
        for row in rows_of(report, "items")
        if row["state"] == "blocked" and row.get("group") != "tuning"
    ]
    if bad:
        hosts = ", ".join(dict.fromkeys(host for host, _ in bad))
        reasons = "; ".join(dict.fromkeys(why for _, why in bad))
        fix = "Mend it there and run the command again: what was written is recorded and can be taken back."
        raise HostsFailed(hosts, reasons, fix)
