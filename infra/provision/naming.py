"""Names and tags of cloud resources: all follow from the stack and the topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# By it everything of a stack is found again.
STACK_TAG = "moe-infra:stack"
# Configuration keys of the operator's own tags, and their names as such.
OWNER_TAGS = ("owner", "cost_center")
# Label of the nodes with accelerators in a cluster of the stack's own: pods with engines choose them by it.
POOL_LABEL, POOL = "moe-infra/pool", "accelerators"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The tags of every resource of a stack; `further` are those the operator configured."""

    stack: str
    further: Mapping[str, str]

    def of(self, name: str, **more: str) -> dict[str, str]:
        """All tags of one resource; `name` is shown in the console behind the stack's."""
        return {**self.lasting(name, **more), **self.further}

    def lasting(self, name: str, **more: str) -> dict[str, str]:
        """Those without the operator's: for what a launch template hands on.

        They are part of its versions, and another version replaces machines.
        """
        return {
            "Name": f"{self.stack}/{name}",
            STACK_TAG: self.stack,
            **{f"moe-infra:{key}": value for key, value in more.items()},
        }


def give_back_machines(stack: str) -> str:
    """The command that gives the machines of a stack back, protected or not, and nothing else."""
    return f"pulumi destroy --ignore-protect --target-dependents --target '**:Instance::**' --stack {stack}"
