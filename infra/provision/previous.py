"""What the last `pulumi up` of a stack exported: by it a change that cannot be made is refused before any call."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

# The engine's own question behind StackReference (pulumi, pkg/resource/deploy/builtins.go), asked here because
# its answer is needed before the first resource.
READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"


def read_previous_weights(stack: str) -> Mapping[str, object]:
    """The `weights` of the stack's own last inventory; empty for a stack that no `up` has finished yet."""
    return _part(stack, "weights")


def read_previous_version(stack: str) -> str:
    """The Kubernetes version of the stack's own cluster in its last inventory, "" without one."""
    return str(_part(stack, "cluster").get("kubernetes_version") or "")


def _part(stack: str, name: str) -> Mapping[str, object]:
    """A map of the last inventory, empty where there is none."""
    place = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    answer = pulumi.runtime.invoke(READ_OUTPUTS, {"name": place}).value or {}
    inventory = (answer.get("outputs") or {}).get("inventory")
    part = inventory.get(name) if isinstance(inventory, Mapping) else None
    return part if isinstance(part, Mapping) else {}
