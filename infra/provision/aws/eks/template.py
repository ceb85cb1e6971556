"""Whether nodes of a capacity block that run would have to change, which EKS refuses while there are any.

EKS User Guide, "Create a managed node group with Capacity Blocks for ML": another version of the launch template, or
of the nodes, wants a desired size of 0. What the template says of security groups is known too late to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from infra.catalog.instance_types import InstanceType
from infra.errors import Problem
from infra.provision.asking import Asking
from infra.provision.aws.account import Account
from infra.provision.aws.capacity import CapacityPlan
from infra.provision.aws.eks.nodes import CAPACITY_TYPES, node_config, user_data
from infra.provision.aws.eks.standing import StandingCluster
from infra.provision.aws.first_boot import weights_of
from infra.provision.aws.launch_template import layout_of, read_template
from infra.provision.aws.naming import give_back_nodes
from infra.provision.config_problems import account_problem

ACCELERATORS = "accelerators"


def wanted_template(
    account: Account, capacity: CapacityPlan, instance_type: InstanceType, mount: str | None
) -> dict[str, object]:
    """What the launch template is to say, as far as it is known beforehand; by the words for it.

    Args:
        account: with reservation and root volume.
        capacity: with the network layout.
        instance_type: of the nodes.
        mount: script of first boot, None for none.
    """
    return {
        "instance type": instance_type.id,
        **weights_of(user_data(node_config(has_disks=True), mount)),
        "root_volume_gib": account.root_volume_gib,
        "kms_key_arn": account.kms_key_arn or "",
        "network layout": layout_of(instance_type.interfaces(capacity.layout)),
        "reservation_id": account.reservation_id or "",
    }


def keeps_template(standing: StandingCluster, capacity: CapacityPlan) -> bool:
    """Whether nodes keep the launch template that they have: those of a block do while they run, or nobody may ask."""
    if CAPACITY_TYPES[capacity.kind] != "CAPACITY_BLOCK":
        return False
    group = standing.groups.get(ACCELERATORS)
    return standing.version is None or (group is not None and group.num_nodes > 0)


def warn_of_kept_keys(
    standing: StandingCluster, capacity: CapacityPlan, account: Account, stack: str
) -> None:
    """Say which nodes keep the key that their disks were encrypted with: another one would replace them.

    Nodes of a block are refused another one (`block_problems`).
    """
    is_block = CAPACITY_TYPES[capacity.kind] == "CAPACITY_BLOCK"
    for name, group in standing.groups.items():
        if not group.num_nodes or not group.template_id or (is_block and name == ACCELERATORS):
            continue
        found = Asking(stack).ask(
            "moe-infra:kms_key_arn",
            f"answer on launch template {group.template_id}",
            account.kms_key_arn or "",
            lambda identity=group.template_id: read_template(id=identity),  # type: ignore[misc]
        )
        if found is not None and found["kms_key_arn"] != (account.kms_key_arn or ""):
            was = found["kms_key_arn"] or "AWS's own key"
            pulumi.log.warn(
                f"moe-infra:kms_key_arn: disks of node group {name} stay encrypted with {was}; a group that is "
                "made anew takes the key."
            )


def block_problems(
    standing: StandingCluster, capacity: CapacityPlan, wanted: Mapping[str, object], stack: str
) -> tuple[Problem, ...]:
    """Why nodes of a block would have to be given back first; asks for the template that they were launched from."""
    group = standing.groups.get(ACCELERATORS)
    if CAPACITY_TYPES[capacity.kind] != "CAPACITY_BLOCK" or group is None or not group.num_nodes:
        return ()
    changed = []
    if group.version != standing.version:
        changed.append(f"Kubernetes {group.version}, where the cluster runs {standing.version}")
    asking = Asking(stack)
    found = asking.ask(
        "moe-infra:reservation_id",
        f"answer on launch template {group.template_id}",
        "cr-0123456789abcdef0",
        lambda: read_template(id=group.template_id),
    )
    if found is not None:
        changed += [each for each, value in wanted.items() if found[each] != value]
    if not changed:
        return tuple(asking.problems)
    what = (
        f"{group.num_nodes} nodes of a capacity block run with another {', '.join(changed)}, and EKS changes none of "
        f"them while they run: give them back first ({give_back_nodes(stack)}), or stay."
    )
    key = "kubernetes_version" if group.version != standing.version else "reservation_id"
    example = group.version if key == "kubernetes_version" else "cr-0123456789abcdef0"
    return (*asking.problems, account_problem(f"moe-infra:{key}", what, example, stack))
