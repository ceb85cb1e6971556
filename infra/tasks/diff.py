"""`fab diff`: what the next `up` would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.errors import Differs, HostsFailed
from infra.launch.answering import AnsweringFleet
from infra.launch.differences import differences
from infra.launch.name_lists import listed
from infra.launch.plan_difference import Change
from infra.tasks.choice import same_choice
from infra.tasks.chosen_release import chosen_release
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, with_failures
from infra.tasks.reached_hosts import deployment_of
from infra.tasks.recorded_hosts import open_fleet


def run(options: Options, output: Output) -> int:
    """Print every change, grouped over what changes alike; 6 when there is one, 4 when a host cannot be asked."""
    catalog = Catalog()
    chosen = chosen_release(options, catalog, output)
    with open_fleet(options, chosen.reached, output) as opened:
        fleet = AnsweringFleet(opened)
        deployment, secrets = deployment_of(chosen.placed, catalog, fleet, output)
        deployment = replace(deployment, forces=options.words("force"))
        found = differences(deployment, secrets)
    changes = found.changes
    document = diff_document(chosen.plan.stack, changes)
    output.document(with_failures(document, fleet.failures))
    again = same_choice(options)
    if fleet.away:
        output.data(
            listing(changes) if changes else "Nothing would change on the hosts that answer."
        )
        output.failed_hosts(fleet.failures, len(chosen.hosts))
        output.next_command(f"fab diff {again}")
        return HostsFailed.exit_code
    if not changes:
        output.data(f"`fab up` would change nothing of {chosen.plan.stack}.")
        output.next_command(f"fab status {again}")
        return 0
    output.data(listing(changes))
    release = options.text("release")
    output.next_command(
        f"fab up {again}"
        + (f" --release {release}" if release else " --replace" if found.replaces else "")
        + (" --tune" if any(change.what == "tuning" for change in changes) else "")
    )
    return Differs.exit_code


def diff_document(stack: str, changes: Sequence[Change]) -> dict[str, object]:
    """The document of `diff`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": stack,
        "ok": not changes,
        "changes": [change.as_document() for change in changes],
    }


def listing(changes: Sequence[Change]) -> str:
    """Changes for people: whoever changes alike stands under one head."""
    by_subject: dict[str, list[Change]] = {}
    for change in changes:
        by_subject.setdefault(change.process or change.host or "the deployment", []).append(change)
    alike: dict[tuple[str, ...], list[str]] = {}
    for subject, own in by_subject.items():
        alike.setdefault(tuple(_line(change, subject) for change in own), []).append(subject)
    return "\n".join("\n".join([_head(subjects), *lines]) for lines, subjects in alike.items())


def _head(subjects: Sequence[str]) -> str:
    return f"{listed(subjects)}:"


def _line(change: Change, subject: str) -> str:
    name = "" if change.name == subject else f" {change.name}"
    if change.what == "secret":
        return f"  secret{name}: differs (not shown)"
    before = "absent" if change.before is None else change.before or "(no value)"
    after = "absent" if change.after is None else change.after or "(no value)"
    line = f"  {change.what}{name}: {before} → {after}"
    if change.diff is None:
        return line
    return "\n".join([line, *(f"    {text}" for text in change.diff.splitlines())])
