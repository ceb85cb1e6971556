"""What the last `pulumi up` of a stack exported: by it a change that cannot be made is refused before any call."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pulumi

from infra.errors import PrerequisiteError

# The engine's own question behind StackReference (pulumi, pkg/resource/deploy/builtins.go), asked here because
# its answer is needed before the first resource.
READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"
# The engine saves its state while the program runs, a file of a folder in place: who reads in that moment gets a part.
HALF_WRITTEN = "failed to load checkpoint"
ATTEMPTS, PAUSE_S = 25, 0.2


def read_previous_weights(stack: str) -> Mapping[str, object]:
    """The `weights` of the stack's own last inventory; empty for a stack that no `up` has finished yet.

    Raises:
        PrerequisiteError: the state cannot be read, now and five seconds later.
    """
    weights = _read_inventory(stack).get("weights")
    return weights if isinstance(weights, Mapping) else {}


def read_previous_machines(stack: str) -> Mapping[str, str]:
    """Ids of the machines of the stack's own last inventory, by host name; empty as `read_previous_weights`.

    Raises:
        PrerequisiteError: as `read_previous_weights`.
    """
    hosts = _read_inventory(stack).get("hosts")
    rows = [each for each in hosts if isinstance(each, Mapping)] if isinstance(hosts, list) else []
    return {str(row["name"]): str(row["instance_id"]) for row in rows if row.get("instance_id")}


def _read_inventory(stack: str) -> Mapping[str, object]:
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    inventory = _read_outputs(name).get("inventory")
    return inventory if isinstance(inventory, Mapping) else {}


def _read_outputs(name: str) -> Mapping[str, object]:
    """The last outputs of a stack by its whole name; again while its state is being written."""
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            answer = pulumi.runtime.invoke(READ_OUTPUTS, {"name": name}).value or {}
        except Exception as error:  # the SDK raises nothing narrower
            if HALF_WRITTEN not in str(error):
                raise
            reason = str(error)
            time.sleep(PAUSE_S)
        else:
            return answer.get("outputs") or {}
    raise PrerequisiteError(
        "Pulumi's state",
        f"It cannot be read: {reason.strip()}.",
        "Run the same command again; if it stays so, `pulumi stack export` tells whether the state is damaged.",
    )
