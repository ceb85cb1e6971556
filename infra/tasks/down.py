"""`fab down`: stop the deployment and remove what `up` put on the hosts."""

from __future__ import annotations

from infra.errors import HostsFailed
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import SystemClock
from infra.launch.take_down import take_down
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
            done = take_down(reached.fleet, reached.hosts, reached.name, pace)
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
