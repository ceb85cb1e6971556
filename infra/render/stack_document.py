"""`stack.json` of a rendered folder: the release, and which host of the inventory serves as which of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.plan.process import Plan
from infra.render.kept_release import kept_document

SCHEMA_VERSION = 1


def stack_document(
    plan: Plan, enable: Sequence[str], inventory_names: Mapping[str, str] | None
) -> dict[str, object]:
    """What concerns the stack as a whole; host states stand beside it.

    Args:
        plan: the plan.
        enable: tuning items that the stack switches on beyond its profile.
        inventory_names: what the inventory calls each plan host; None when the plan's addresses are
            examples, so that nothing may be brought to hosts.
    """
    names = inventory_names
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "hosts": None if names is None else {names[host.name]: host.name for host in plan.hosts},
        "release": kept_document(plan, enable),
    }
