"""`fab bundle`: the evidence of a failure, from all ranks at once, in one archive."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from infra.errors import HostsFailed, StackError
from infra.launch.evidence import HostEvidence, collect, knows_stack, write_archive
from infra.launch.first_failure import Failure
from infra.remote.failures import HostFailure, failure_table
from infra.tasks.choice import same_choice
from infra.tasks.limit import limited
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, AsWritten, Output
from infra.tasks.recorded_hosts import open_recorded
from infra.tasks.wrong_choice import refuse_wrong_choice


def run(options: Options, output: Output) -> int:
    """Write the archive and name the first failure; 4 when a host's evidence is not whole, 2 for an unknown stack."""
    with open_recorded(options, output) as everyone:
        chosen = limited(options, everyone.hosts, everyone.serving)
        reached = replace(everyone, hosts=chosen)
        target = _target(options, reached.name)
        output.message(f"collecting from {len(reached.hosts)} hosts, at most a minute")
        with tempfile.TemporaryDirectory(prefix="moe-infra-bundle-") as folder:
            found = collect(reached.streams.open_stream, reached.hosts, reached.name, Path(folder))
            if not knows_stack(found):
                refuse_wrong_choice(options)
            findings = write_archive(target, reached.name, found)
    first, failures = findings.first, _failures(found)
    missing = {failure.host: failure.error.what for failure in failures}
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": reached.name,
            "ok": not failures,
            "file": str(target),
            "first_failure": document_of(first),
            "missing": missing,
        }
    )
    output.data(told_of(first, len(failures), len(found)))
    output.data(f"{target}: begin with {reached.name}/summary.md")
    if failures:
        output.message(output.toned("The evidence of these hosts is missing or not whole:", "bad"))
        output.message(failure_table(failures))
    output.next_command(f"fab status {same_choice(options)}")
    return HostsFailed.exit_code if failures else 0


def document_of(first: Failure | None) -> dict[str, object] | None:
    """The first failure in the task's document."""
    if first is None:
        return None
    return {"time": first.at, "process": first.place, "line": AsWritten(first.line)}


def told_of(first: Failure | None, num_missing: int, num_hosts: int) -> str:
    """The first failure in a line.

    Args:
        first: None where no line tells of one.
        num_missing: how many hosts' evidence did not come whole.
        num_hosts: of how many.
    """
    if num_missing == num_hosts:
        return "No host gave its evidence, so nothing is known of a failure."
    if first is None:
        return f"No line {'of those that came ' if num_missing else ''}tells of a failure."
    return AsWritten(f"First failure: {first.at} {first.place}: {first.line}")


def _target(options: Options, stack: str) -> Path:
    """Where the archive goes.

    Raises:
        StackError: its folder is not there.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = Path(options.text("to") or f"{stack}-{stamp}.tar.gz").absolute()
    if not os.path.isdir(target.parent):  # noqa: PTH112 - says no to what cannot be looked at
        raise StackError("--to", f"There is no folder {target.parent}.", "Make it first.")
    if os.path.isdir(target):  # noqa: PTH112 - as above
        raise StackError("--to", f"{target} is a folder.", "Name a file in it.")
    return target


def _failures(found: list[HostEvidence]) -> tuple[HostFailure, ...]:
    return tuple(
        HostFailure(host=each.host, error=each.error) for each in found if each.error is not None
    )
