"""`fab status`: the state of every process, from its host."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from infra.errors import HostsFailed, NotReady, StackError
from infra.launch.deployment import Limits
from infra.launch.observation import (
    UNKNOWN,
    ProcessStatus,
    observe,
    remembered,
    status_document,
    unknown_hosts,
    unwatched,
)
from infra.launch.releases import HASH_SHOWN, read_reached
from infra.tasks.choice import same_choice
from infra.tasks.limit import limited
from infra.tasks.options import Options
from infra.tasks.other_stacks import others_there
from infra.tasks.output import Output, table, with_failures
from infra.tasks.recorded_hosts import ReachedStack, machines, open_recorded
from infra.tasks.way_out import next_words, not_watched, out_of_reach, told
from infra.tasks.wrong_choice import refuse_wrong_choice

WATCH_S = 2.0


def run(options: Options, output: Output) -> int:
    """Print one row per process; 4 when a host is out of reach, 5 when a process is not ready or nobody watches it."""
    watches = options.is_on("watch")
    if watches and output.wants_json:
        what = "--json prints one document, --watch never ends."
        raise StackError("command line", what, "Leave one of them out.")
    with open_recorded(options, output) as reached:
        # All hosts are asked: what a part of a group does, the host of its rank 0 knows.
        shown = limited(options, reached.hosts, reached.serving)
        if watches:
            _watch(reached, shown, options, output)
        rows = _observed(reached, shown)
        half = _half_installed(reached, shown, rows)
        others = "" if rows or half else others_there(reached)
    if not rows and not half:
        refuse_wrong_choice(options)
    document = {**status_document(reached.name, rows), "hosts": machines(reached)}
    failures = (*unknown_hosts(rows), *not_watched(rows, same_choice(options)))
    output.document(with_failures(document, failures))
    for host, release in half.items():
        output.message(
            f"{host}: release {release[:HASH_SHOWN]} was not installed to the end. "
            f"`fab up --stack {reached.name}` goes on, `fab down --stack {reached.name}` removes what is there."
        )
    if not rows:
        nothing = f"Nothing of {reached.name} runs on these {len(shown)} hosts."
        output.message(nothing if half else nothing.replace(" runs ", " is ") + others)
        output.next_command(f"fab up {same_choice(options)}")
        return NotReady.exit_code
    output.data(status_table(rows))
    return _verdict(rows, half, options, output)


def _observed(reached: ReachedStack, shown: Collection[str]) -> tuple[ProcessStatus, ...]:
    """The rows of some hosts."""
    rows = observe(reached.fleet, reached.hosts, reached.name, timeout_s=Limits().ask_s)
    return tuple(row for row in rows if row.host in shown)


def _half_installed(
    reached: ReachedStack, shown: Sequence[str], rows: Sequence[ProcessStatus]
) -> Mapping[str, str]:
    """Releases that were not installed to the end, by host; asked for only when something is not ready."""
    away = {row.host for row in rows if row.state == UNKNOWN}
    hosts = [host for host in shown if host not in away]
    if rows and all(row.ready for row in rows if row.state != UNKNOWN):
        return {}
    limit = Limits().ask_s
    recorded, _ = read_reached(reached.fleet, hosts, reached.name, timeout_s=limit)
    return recorded.unfinished


def _verdict(
    rows: Sequence[ProcessStatus], half: Collection[str], options: Options, output: Output
) -> int:
    """The exit code, and what to type next."""
    again = same_choice(options)
    unknown = [row for row in rows if row.state == UNKNOWN]
    waiting = [row.id for row in rows if not row.ready and row.state != UNKNOWN]
    for words in told(rows, again):
        output.message(words)
    if waiting:
        output.message(output.toned(f"Not ready: {', '.join(waiting)}.", "bad"))
    for row in unknown:
        output.message(output.toned(out_of_reach(row, again), "bad"))
    output.next_command(next_words(rows, half, again))
    if unknown:
        return HostsFailed.exit_code
    return NotReady.exit_code if waiting or unwatched(rows) else 0


def _watch(
    reached: ReachedStack, shown_hosts: Collection[str], options: Options, output: Output
) -> NoReturn:
    """Show the rows until interrupted: redrawn on a terminal, else appended when they have changed."""
    redraws, shown = output.stdout.isatty(), ""
    before: tuple[ProcessStatus, ...] = ()
    while True:
        rows = _observed(reached, shown_hosts)
        before = rows = remembered(rows, before)
        text = status_table(rows) if rows else f"Nothing of {reached.name} is on these hosts."
        text = "\n".join([text, *told(rows, same_choice(options))])
        if redraws or text != shown:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            head = f"{reached.name} at {stamp} UTC, every {WATCH_S:g} s; Ctrl-C ends"
            output.redrawn(f"{head}\n{text}")
            shown = text
        time.sleep(WATCH_S)


def status_table(rows: Sequence[ProcessStatus]) -> str:
    """The rows for people; nothing is claimed of a host that is out of reach."""
    head = ("process", "host", "state", "ready", "since", "epoch", "restarts", "devices")
    return table([head, *(_cells(row) for row in rows)])


def _cells(row: ProcessStatus) -> tuple[str, ...]:
    is_away = row.state == UNKNOWN
    ready = UNKNOWN if is_away else "yes" if row.ready else "no"
    since = (row.since or (UNKNOWN if is_away else "never")).replace("T", " ")
    devices = None if row.devices is None else ",".join(map(str, row.devices)) or "none"
    numbers = (str(UNKNOWN if number is None else number) for number in (row.epoch, row.restarts))
    return (row.id, row.host, row.state, ready, since, *numbers, devices or UNKNOWN)
