"""Rules about clouds: what a platform is not known to take."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.instance_types import read_instance_type
from infra.checks.view import Finding, PlanView


def nodes_in_ordinary_zone(view: PlanView) -> Iterator[Finding]:
    """Machines of a cluster on EKS are offered in ordinary zones: nobody has shown node groups in Local Zones."""
    if view.plan.platform != "aws-eks":
        return
    found = {
        accelerator.aws_instance_type
        for process in view.engines
        if (accelerator := view.accelerator(process)).aws_instance_type is not None
    }
    for name in sorted(found):
        if read_instance_type(name).is_in_local_zone:
            what = (
                f"{name} is offered in a Local Zone alone, and whether managed node groups take its capacity there is "
                "not verified: AWS's own pages say yes and no."
            )
            fix = "Use platform aws-ec2; waive this rule when AWS has confirmed it to you."
            yield Finding(field="platform", what=what, fix=fix)
