"""`fab status`: the state of every process, from its host."""

from __future__ import annotations

from collections.abc import Sequence

from infra.errors import NotReady
from infra.launch.deployment import Limits
from infra.launch.observation import ProcessStatus, observe, status_document
from infra.tasks.options import Options
from infra.tasks.output import Output, table
from infra.tasks.reached_hosts import open_recorded
from infra.tasks.stack_options import same_choice


def run(options: Options, output: Output) -> int:
    """Print one row per process; 5 when one is not ready."""
    with open_recorded(options) as reached:
        rows = observe(reached.fleet, reached.hosts, reached.name, timeout_s=Limits().ask_s)
    document = status_document(reached.name, rows)
    output.document(document)
    if not rows:
        output.message(f"Nothing of {reached.name} is on these {len(reached.hosts)} hosts.")
        output.next_command(f"fab up {same_choice(options)}")
        return NotReady.exit_code
    output.data(status_table(rows))
    waiting = [row.id for row in rows if not row.ready]
    if waiting:
        output.message(output.toned(f"Not ready: {', '.join(waiting)}.", "bad"))
        output.next_command(f"fab logs {same_choice(options)} --rank {waiting[0]}")
        return NotReady.exit_code
    output.next_command(f"fab verify {same_choice(options)}")
    return 0


def status_table(rows: Sequence[ProcessStatus]) -> str:
    """The rows for people."""
    head = ("process", "host", "state", "ready", "since", "restarts", "devices")
    return table(
        [
            head,
            *(
                (
                    row.id,
                    row.host,
                    row.state,
                    "yes" if row.ready else "no",
                    (row.since or "never").replace("T", " "),
                    str(row.restarts),
                    ",".join(str(index) for index in row.devices) or "none",
                )
                for row in rows
            ),
        ]
    )
