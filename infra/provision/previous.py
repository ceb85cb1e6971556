"""What the last `pulumi up` of a stack exported: by it a change that cannot be made is refused before any call."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

# The engine's own question behind StackReference (pulumi, pkg/resource/deploy/builtins.go), asked here because
# its answer is needed before the first resource.
READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"


def read_previous_weights(stack: str) -> Mapping[str, object]:
    """The `weights` of the stack's own last inventory; empty for a stack that no `up` has finished yet."""
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    answer = pulumi.runtime.invoke(READ_OUTPUTS, {"name": name}).value or {}
    inventory = (answer.get("outputs") or {}).get("inventory")
    weights = inventory.get("weights") if isinstance(inventory, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}
