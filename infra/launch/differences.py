"""What the next `up` would change: the plan that is wanted, against what is recorded and found on its hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from infra.launch.answering import away_of, read_each, refuse_silence
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, ask_all, rows_of
from infra.launch.installation import running_units, state_request
from infra.launch.plan_difference import (
    Change,
    What,
    host_differences,
    process_change,
    process_differences,
)
from infra.launch.refusals import find_other_release
from infra.launch.releases import HASH_SHOWN
from infra.launch.replacement import plan_replacement
from infra.launch.secret import Secret
from infra.launch.sharing import records_of
from infra.plan.process import Plan, Process, ProcessKind
from infra.render.host_paths import (
    credentials_folder,
    process_folder,
    release_path,
    stack_folder,
    watch_config,
)
from infra.render.kept_release import read_kept
from infra.render.release_record import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What the next `up` would change.

    Args:
        changes: the deployment's first, then host by host.
        replaces: whether processes that run would be stopped for it, which `up` only does when it is told to.
    """

    changes: tuple[Change, ...]
    replaces: bool


def differences(deployment: Deployment, secrets: Mapping[str, Secret]) -> Differences:
    """Every change; nothing is changed.

    With a fleet that leaves out who does not answer (`AnsweringFleet`), nothing is said of such hosts.

    Raises:
        HostsFailed: a host cannot be asked, or its record is damaged; of such a fleet, every host.
    """
    requests = {
        host: {
            **state_request(
                deployment,
                state.of_groups("tuning", "files", "images", "firewall"),
                "check",
                secrets,
            ),
            "diff": True,
            "withdraws": True,
            "tells_releases": True,
            "prunes": True,
        }
        for host, state in deployment.states.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    stack = deployment.plan.stack
    records = read_each(deployment.fleet, reports, records_of)
    refuse_silence(deployment.fleet)
    reports = {host: reports[host] for host in records}
    before = {host: stacks[stack] for host, stacks in records.items() if stack in stacks}
    running = running_units(deployment, before)
    comparison = _Comparison(
        deployment=deployment,
        reports=reports,
        before=before,
        plans=_old_plans(deployment, before, reports),
        running=frozenset(running),
    )
    away = away_of(deployment.fleet)
    told = [host for host in reports if host not in away]
    replacement = plan_replacement(deployment, before, reports)
    return Differences(
        changes=(
            *comparison.of_release(),
            *(change for host in told for change in comparison.of_host(host)),
        ),
        replaces=bool(find_other_release(deployment, replacement, running)),
    )


def _old_plans(
    deployment: Deployment, before: Mapping[str, Release], reports: Mapping[str, Report]
) -> dict[str, Plan]:
    """The plans of recorded releases by hash, each from the first host that keeps it."""
    plans = {deployment.plan.hash: deployment.plan}
    for wanted in dict.fromkeys(release.release for release in before.values()):
        for keeper in (host for host, report in reports.items() if wanted in _kept(report)):
            if wanted not in plans and (plan := _kept_plan(deployment, keeper, wanted)) is not None:
                plans[wanted] = plan
    return plans


def _kept_plan(deployment: Deployment, keeper: str, wanted: str) -> Plan | None:
    request = {"operation": "releases", "stack": deployment.plan.stack, "document": wanted}
    asked = ask_all(deployment.fleet, {keeper: request}, timeout_s=deployment.limits.ask_s)
    return read_each(deployment.fleet, asked, _read_plan).get(keeper)


def _read_plan(host: str, report: Report) -> Plan | None:
    document = report.get("document")
    return read_kept(host, document).plan if isinstance(document, Mapping) else None


def _kept(report: Report) -> Sequence[object]:
    kept = report.get("kept")
    return kept if isinstance(kept, list) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A deployment against its hosts.

    Args:
        before: the stack's record by host.
        plans: of recorded releases, by hash; one that nobody keeps is missing.
        running: processes that run.
    """

    deployment: Deployment
    reports: Mapping[str, Report]
    before: Mapping[str, Release]
    plans: Mapping[str, Plan]
    running: frozenset[str]

    def of_release(self) -> Iterator[Change]:
        """Changes of the deployment as a whole."""
        plan = self.deployment.plan
        found = dict.fromkeys(release.release for release in self.before.values())
        for old in found or [None]:
            if old != plan.hash:
                yield Change(
                    host=None,
                    process=None,
                    what="release",
                    name=plan.stack,
                    before=old and old[:HASH_SHOWN],
                    after=plan.hash[:HASH_SHOWN],
                )
            if old is not None and old in self.plans:
                yield from host_differences(self.plans[old], plan)

    def of_host(self, host: str) -> Iterator[Change]:
        """Changes on one host: processes, then everything else that it holds."""
        unfinished = self.reports[host].get("unfinished")
        if unfinished:
            yield Change(
                host=host,
                process=None,
                what="unfinished",
                name="installation",
                before=str(unfinished)[:HASH_SHOWN],
                after=self.deployment.plan.hash[:HASH_SHOWN],
            )
        changes = list(self._of_processes(host))
        yield from changes
        yield from self._of_items(host, {str(c.process) for c in changes if c.what != "state"})

    def _of_processes(self, host: str) -> Iterator[Change]:
        release = self.before.get(host)
        recorded = {p.id for p in release.processes} if release is not None else set()
        old_plan = self.plans.get(release.release) if release is not None else None
        old = {p.id: p for p in old_plan.on_host(host)} if old_plan is not None else {}
        wanted = {process.id: process for process in self.deployment.plan.on_host(host)}
        for name in sorted(recorded - set(wanted)):
            yield process_change(host, name, "process", ("there", None))
        for name, process in wanted.items():
            if name not in recorded:
                yield process_change(host, name, "process", (None, "there"))
                continue
            if name in old:
                yield from process_differences(old[name], process)
            if name not in self.running:
                yield process_change(host, name, "state", ("ended", "running"))

    def _of_items(self, host: str, explained: set[str]) -> Iterator[Change]:
        """Items that differ, but for files that follow from a process that changes anyway."""
        plan = self.deployment.plan
        folders = {f"{process_folder(plan.stack, p)}/": p for p in plan.on_host(host)}
        records = (release_path(plan.stack), watch_config(plan.stack))  # they name the release
        gone = tuple(f"{stack_folder(plan.stack)}/{kind}-" for kind in get_args(ProcessKind))
        for row in rows_of(self.reports[host], "items"):
            path = str(row["id"]).removeprefix("file:")
            process = next((p for f, p in folders.items() if path.startswith(f)), None)
            follows = process is not None and process.id in explained
            is_removed = process is None and path.startswith(gone)
            is_wanted = row["state"] == "changed" or (
                row["state"] in {"failed", "blocked"} and row.get("group") != "tuning"
            )
            if is_wanted and not follows and not is_removed and path not in records:
                yield self._item_change(host, row, process)

    def _item_change(self, host: str, row: Mapping[str, object], process: Process | None) -> Change:
        path = str(row["id"]).removeprefix("file:")
        what = _what(self.deployment.plan.stack, row, path)
        is_secret = what == "secret"
        diff = row.get("diff")
        return Change(
            host=host,
            process=None if process is None else process.id,
            what=what,
            name=path.removeprefix("image:").removeprefix("firewall:").removeprefix("metadata:"),
            before=None if is_secret else _text(row.get("before")),
            after=None if is_secret else _text(row.get("wanted")),
            diff=str(diff) if diff and what in {"file", "unit"} and row.get("before") else None,
        )


def _what(stack: str, row: Mapping[str, object], path: str) -> What:
    if path.startswith(f"{credentials_folder(stack)}/"):
        return "secret"
    if row.get("group") == "images":
        return "image"
    if row.get("group") == "tuning":
        return "tuning"
    if row.get("group") == "firewall" or path.startswith("metadata:"):
        return "firewall"
    return "unit" if path.startswith("/etc/systemd/") else "file"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
