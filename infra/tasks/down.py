"""`fab down`: stop the deployment and remove what `up` put on the hosts."""

from __future__ import annotations

from collections.abc import Sequence

from infra.errors import HostsFailed
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import SystemClock
from infra.launch.name_lists import listed
from infra.launch.releases import HASH_SHOWN, Recorded
from infra.launch.take_down import purge, take_down
from infra.tasks.asking import ask_first
from infra.tasks.choice import same_choice
from infra.tasks.options import Options
from infra.tasks.other_stacks import others_there
from infra.tasks.output import SCHEMA_VERSION, Output, with_failures
from infra.tasks.recorded_hosts import open_recorded
from infra.tasks.wrong_choice import refuse_wrong_choice


def run(options: Options, output: Output) -> int:
    """Take down what is recorded on the hosts; nothing there is fine, and 4 when a host was out of reach."""
    with open_recorded(options, output, changes="fab down") as reached:
        pace = Pace(limits=Limits(), clock=SystemClock(), say=output.message)
        try:

            def agree(there: Recorded, kept: Sequence[str]) -> None:
                output.message(told_loss(reached.name, there, kept))
                ask_first(options, output, "Take it down?", f"stack {reached.name}")

            done = take_down(reached.fleet, reached.hosts, reached.name, pace, agree)
            if options.is_on("purge"):
                away = {failure.host for failure in done.away}
                cleared = [host for host in reached.hosts if host not in away]
                purge(reached.fleet, cleared, reached.name, pace)
        except KeyboardInterrupt:
            again = f"fab down {same_choice(options)}"
            output.message(f"Not down yet: `{again}` goes on from what it finds.")
            raise
        others = "" if done.was_there else others_there(reached)
    if not done.was_there:
        refuse_wrong_choice(options)
    num, again = len(reached.hosts) - len(done.away), same_choice(options)
    document: dict[str, object] = {"schema_version": SCHEMA_VERSION, "stack": reached.name}
    document |= {"ok": True, "was_there": done.was_there}
    output.document(with_failures(document, done.away))
    output.data(
        f"{reached.name} is down on {num} hosts."
        if done.was_there
        else f"Nothing of {reached.name} was on these {num} hosts.{others}"
    )
    if done.away:
        output.failed_hosts(done.away, len(reached.hosts))
        output.message(
            "What runs there may go on, and what was put there stays. "
            f"`fab down {again}` clears them once they answer; a machine that never will may leave the inventory."
        )
        output.next_command(f"fab status {again}")
        return HostsFailed.exit_code
    output.next_command(f"fab up {again}")
    return 0


def told_loss(stack: str, there: Recorded, kept: Sequence[str]) -> str:
    """What goes with a deployment, and what stays.

    Args:
        stack: its name.
        there: what its hosts hold.
        kept: hashes of the releases that they keep.
    """
    processes = [p for release in there.releases.values() for p in release.processes]
    groups = list(dict.fromkeys(p.group for p in processes))
    num, hosts = len(processes), {*there.releases, *there.unfinished}
    words = [
        f"{stack} goes from {len(hosts)} host{'s' * (len(hosts) != 1)} ({listed(sorted(hosts))}): ",
        f"{num} process{'es' * (num != 1)} of {listed(groups)} end, " if groups else "",
        "units, files and secrets are removed.",
    ]
    if kept:
        shown = ", ".join(name[:HASH_SHOWN] for name in kept)
        words.append(f" So are the releases kept there ({shown}): `up --release` finds none then.")
    return "".join([*words, " Weights, images and tuning stay."])
