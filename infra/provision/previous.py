"""What the last `pulumi up` of a stack exported: by it a change that cannot be made is refused before any call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

# The engine's own question behind StackReference (pulumi, pkg/resource/deploy/builtins.go), asked here because
# its answer is needed before the first resource.
READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The last inventory of a stack.

    Args:
        num_hosts: that were up at the end of the last `up` that ended well: what `destroy` has taken since counts,
            what a first `up` that failed has made does not.
        weights: its `weights`; empty for a new stack.
    """

    num_hosts: int
    weights: Mapping[str, object]


def read_previous(stack: str) -> Previous:
    """The stack's own last outputs; nothing for a new stack."""
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    answer = pulumi.runtime.invoke(READ_OUTPUTS, {"name": name}).value or {}
    inventory = (answer.get("outputs") or {}).get("inventory")
    if not isinstance(inventory, Mapping):
        return Previous(num_hosts=0, weights={})
    hosts, weights = inventory.get("hosts"), inventory.get("weights")
    return Previous(
        num_hosts=len(hosts) if isinstance(hosts, list) else 0,
        weights=weights if isinstance(weights, Mapping) else {},
    )
