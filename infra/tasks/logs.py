"""`fab logs`: the processes' logs, merged by time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from infra.errors import StackError
from infra.launch.deployment import Limits
from infra.launch.fleet import SystemClock
from infra.launch.log_reading import LogLine, LogQuery, follow_logs, read_logs
from infra.launch.releases import read_releases
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.reached_hosts import open_recorded
from infra.tasks.stack_options import same_choice

DEFAULT_LINES = 50


def run(options: Options, output: Output) -> int:
    """Print the lines; with --follow, go on until interrupted."""
    follows = options.is_on("follow")
    if follows and output.wants_json:
        what = "--json prints one document, --follow never ends."
        raise StackError("command line", what, "Leave one of them out.")
    query = LogQuery(
        process=options.text("rank"),
        grep=options.text("grep"),
        lines=int(options.number("lines") or DEFAULT_LINES),
        since=options.text("since"),
    )
    limit = Limits().ask_s
    with open_recorded(options) as reached:
        releases = read_releases(reached.fleet, reached.hosts, reached.name, timeout_s=limit)
        if not releases:
            output.message(f"Nothing of {reached.name} is on these {len(reached.hosts)} hosts.")
        if follows and releases:
            for batch in follow_logs(
                reached.fleet, releases, query, SystemClock(), timeout_s=limit
            ):
                _show(batch, output)
        lines = read_logs(reached.fleet, releases, query, timeout_s=limit) if releases else []
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": reached.name,
            "ok": bool(releases),
            "lines": [
                {"time": line.time_s, "process": line.process, "message": line.message}
                for line in lines
            ],
        }
    )
    _show(lines, output)
    output.next_command(f"fab status {same_choice(options)}")
    return 0


def _show(lines: Sequence[LogLine], output: Output) -> None:
    for line in lines:
        output.data(f"{clock_stamp(line.time_s)} {line.process:<12} {line.message}")


def clock_stamp(time_s: float) -> str:
    """`2026-11-20 14:00:00.123`, in UTC."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
