"""`fab down`: stop the deployment and remove what `up` put on the hosts."""

from __future__ import annotations

from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import SystemClock
from infra.launch.take_down import take_down
from infra.tasks.choice import same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.recorded_hosts import open_recorded, refuse_unknown_stack


def run(options: Options, output: Output) -> int:
    """Take down what is recorded on the hosts; nothing there is fine."""
    with open_recorded(options, changes="fab down") as reached:
        pace = Pace(limits=Limits(), clock=SystemClock(), say=output.message)
        try:
            was_there = take_down(reached.fleet, reached.hosts, reached.name, pace)
        except KeyboardInterrupt:
            again = f"fab down {same_choice(options)}"
            output.message(f"Not down yet: `{again}` goes on from what it finds.")
            raise
    if not was_there:
        refuse_unknown_stack(options)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": reached.name,
            "ok": True,
            "was_there": was_there,
        }
    )
    num = len(reached.hosts)
    output.data(
        f"{reached.name} is down on {num} hosts."
        if was_there
        else f"Nothing of {reached.name} was on these {num} hosts."
    )
    output.next_command(f"fab up {same_choice(options)}")
    return 0
