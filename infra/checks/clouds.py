"""Rules about clouds: what a platform is not known to take."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.instance_types import read_instance_type
from infra.checks.view import Finding, PlanView


def nodes_in_ordinary_zone(view: PlanView) -> Iterator[Finding]:
    """Machines of a cluster on EKS are offered in ordinary zones, or nobody has shown a node group with them."""
    if view.plan.platform != "aws-eks":
        return
    found = {
        accelerator.instances["aws"]
        for process in view.engines
        if "aws" in (accelerator := view.accelerator(process)).instances
    }
    for name in sorted(found):
        if read_instance_type(name).is_in_local_zone:
            what = (
                f"{name} is offered in a Local Zone alone. AWS says that node groups are offered there, and nobody has "
                "shown one with its capacity here."
            )
            fix = "Where EKS refuses the node group, use platform aws-ec2."
            yield Finding(field="platform", what=what, fix=fix)
