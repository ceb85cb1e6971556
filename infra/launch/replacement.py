"""What of a deployment must stop before another release of it can be put in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, rows_of
from infra.plan.edge import SECRETS as EDGE_SECRETS
from infra.plan.process import Process
from infra.render.cloud_metadata import metadata_item
from infra.render.edge_files import edge_boot_path, edge_config_path
from infra.render.firewall import boot_files
from infra.render.host_paths import (
    UNIT_FOLDER,
    cleanup_unit,
    credential_path,
    credentials_folder,
    metadata_guard,
    metadata_rules,
    process_folder,
    release_path,
    unit_name,
    unit_template,
    watch_config,
    watch_program,
)
from infra.render.release_record import RecordedProcess, Release

KINDS = ("engine", "router", "edge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A release that is there, against the one that is wanted.

    Args:
        before: the stack's own record by host.
        stale: by host, the recorded processes of groups that change; groups are stopped as one.
        reasons: file ids that differ, as `host:id`, the records' own and the watchers' apart.
    """

    before: Mapping[str, Release]
    stale: Mapping[str, tuple[RecordedProcess, ...]]
    reasons: tuple[str, ...]

    @property
    def is_other(self) -> bool:
        """Whether anything at all is recorded that is not the wanted release."""
        return bool(self.reasons) or any(self.stale.values())

    def releases(self, running: Iterable[str]) -> dict[str, Release]:
        """The records of stale processes that run, as `take_down` stops them."""
        wanted = set(running)
        found = {
            host: replace(
                self.before[host], processes=tuple(p for p in processes if p.id in wanted)
            )
            for host, processes in self.stale.items()
        }
        return {host: release for host, release in found.items() if release.processes}

    def stopping(self, running: Iterable[str]) -> list[str]:
        """The groups of which something runs and has to stop, sorted."""
        stale = self.releases(running).values()
        return sorted({process.group for release in stale for process in release.processes})


def plan_replacement(
    deployment: Deployment, before: Mapping[str, Release], reports: Mapping[str, Report]
) -> Replacement:
    """Which groups change.

    A group changes when the files of one of its processes differ, when one of them comes, goes or moves, or when a unit
    or a credential changes on one of its hosts. Everybody else goes on serving.

    Args:
        deployment: what is wanted.
        before: the stack's own record by host.
        reports: the answers to a look at every host, see `installation`.
    """
    plan = deployment.plan
    differing = {
        host: {
            str(row["id"])
            for row in rows_of(report, "items")
            if row.get("group") == "files" and row.get("state") != "ok"
        }
        - of_no_process(plan.stack)
        for host, report in reports.items()
    }
    changed = _changed_groups(deployment, before, differing)
    return Replacement(
        before=before,
        stale={
            host: tuple(p for p in release.processes if p.group in changed)
            for host, release in before.items()
        },
        reasons=tuple(
            f"{host}:{name}" for host, names in differing.items() for name in sorted(names)
        ),
    )


def of_no_process(stack: str) -> set[str]:
    """Files that may change beside processes that run: the record, the watcher's, what removes containers.

    And what closes the host at boot or keeps engines from a cloud's metadata service, the edge's secrets and its
    configuration: it reads them anew, and cuts no stream.
    """
    reread = (release_path, watch_config, watch_program, metadata_rules, metadata_guard)
    paths = [path(stack) for path in reread]
    paths += [credential_path(stack, name) for name in EDGE_SECRETS]
    paths.append(edge_config_path(stack))
    paths += [item.target for item in boot_files(stack)]
    files = {f"file:{path}" for path in (*paths, f"{UNIT_FOLDER}/{cleanup_unit(stack)}")}
    return {*files, metadata_item(stack).id}


def _changed_groups(
    deployment: Deployment,
    before: Mapping[str, Release],
    differing: Mapping[str, set[str]],
) -> set[str]:
    plan = deployment.plan
    wanted = {process.id: process for process in plan.processes}
    changed: set[str] = set()
    for host, release in before.items():
        names = differing.get(host, set())
        shared = {kind: _is_shared_changed(plan.stack, names, kind) for kind in KINDS}
        for old in release.processes:
            new = wanted.get(old.id)
            is_gone = new is None or new.host != host or unit_name(plan.stack, new) != old.unit
            if is_gone or shared.get(old.kind, True):
                changed.add(old.group)
    for process in plan.processes:
        names = differing.get(process.host, set())
        if any(name.startswith(f"file:{process_folder(plan.stack, process)}/") for name in names):
            changed |= _groups_of(process, before)
        if not _is_recorded(process, before):
            changed.add(process.group)
    return changed


def _is_shared_changed(stack: str, names: set[str], kind: str) -> bool:
    """Whether something changes that all processes of a kind have in common on a host: units and credentials.

    The edge's unit is of no other process; others may hang together.
    """
    own = {f"{UNIT_FOLDER}/{unit_template(stack, 'edge') % ''}", edge_boot_path(stack)}
    edges = {f"file:{path}" for path in own}
    units = (
        edges
        if kind == "edge"
        else {name for name in names if name.startswith("file:/etc/systemd/")} - edges
    )
    credentials = f"file:{credentials_folder(stack)}/"
    return any(name in units or name.startswith(credentials) for name in names)


def _groups_of(process: Process, before: Mapping[str, Release]) -> set[str]:
    """The group of a process, now and before."""
    release = before.get(process.host)
    recorded: Sequence[RecordedProcess] = release.processes if release is not None else ()
    return {process.group, *(old.group for old in recorded if old.id == process.id)}


def _is_recorded(process: Process, before: Mapping[str, Release]) -> bool:
    release = before.get(process.host)
    return release is not None and any(old.id == process.id for old in release.processes)
