"""What a task tells of a deployment when it fails on the way: what there is now, and why it went no further."""

from __future__ import annotations

from dataclasses import dataclass

from infra.errors import HostsFailed, NotReady
from infra.launch.deployment import Deployment
from infra.launch.observation import observe, status_document
from infra.tasks.output import Output, failure_document
from infra.tasks.status import status_table
from infra.tasks.way_out import told


@dataclass(slots=True)
class Begun:
    """Whether a task has changed anything yet; it is called when it is about to (`Deployment.decided`)."""

    is_so: bool = False

    def __call__(self) -> None:
        """From now on."""
        self.is_so = True


def tell_unfinished(
    deployment: Deployment,
    output: Output,
    error: NotReady | HostsFailed,
    *,
    has_begun: bool,
    again: str,
) -> int:
    """Show every process and the failure, what is wrong with groups and who watches nobody; the exit code.

    Args:
        deployment: as far as it came.
        output: where it is told.
        error: what ended the task.
        has_begun: whether anything was changed; else there is no more to tell than the failure.
        again: the options that choose the same stack and inventory.

    Raises:
        HostsFailed: nothing was changed.
    """
    if isinstance(error, HostsFailed) and not has_begun:
        raise error
    stack = deployment.plan.stack
    hosts = list(deployment.states)
    rows = observe(deployment.fleet, hosts, stack, timeout_s=deployment.limits.ask_s)
    document = {**status_document(stack, rows), "ok": False}
    output.document({**document, "errors": failure_document(error)["errors"]})
    output.data(status_table(rows))
    output.message(output.toned(str(error), "bad"))
    for words in told(rows, again):
        output.message(words)
    return error.exit_code
