"""Machines that stand, held against what the stack would launch: nothing takes them away by accident.

A machine takes its launch template at its launch alone. Amazon's provider makes another machine when the version
changes (terraform-provider-aws, ec2_instance.go, CustomizeDiff), and a reservation may have none to give. So machines
that stand keep the version they have (`node_group`), and what an operator changed is refused here, before the first
resource, until the operator names the machines to replace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pulumi_aws import ec2

from infra.catalog.instance_types import InstanceType
from infra.errors import Problem
from infra.plan.topology import TopologyHost
from infra.provision.asking import Asking
from infra.provision.aws.account import Account, host_subnet
from infra.provision.aws.capacity import CapacityPlan
from infra.provision.aws.found import FoundSubnet
from infra.provision.aws.launch_template import layout_of, read_template
from infra.provision.aws.survey import HOLDING_ADDRESSES, find_subnet
from infra.provision.aws.zone import Zone
from infra.provision.config_problems import account_problem
from infra.provision.naming import STACK_TAG, give_back_machines
from infra.spec.nearest import nearest

REPLACE = "moe-infra:replace_machines"
_EXAMPLE = "decode-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingMachines:
    """The machines of one node group, and the newest version of their template, by an operator's words."""

    group: str
    hosts: tuple[str, ...]
    ids: tuple[str, ...]
    template: Mapping[str, object]
    subnet: FoundSubnet | None


def unknown_host_problems(
    named: Collection[str], hosts: Collection[str], stack: str
) -> Iterator[Problem]:
    """Names in `replace_machines` that no host of the stack has."""
    for name in sorted(set(named) - set(hosts)):
        what = f"{name} is no host of {stack}."
        problem = account_problem(REPLACE, what, "HOST,HOST", stack)
        yield replace(problem, fix=f"{nearest(name, hosts)} {problem.fix}")


def find_standing(
    stack: str, groups: Mapping[str, tuple[TopologyHost, ...]]
) -> tuple[tuple[StandingMachines, ...], tuple[Problem, ...]]:
    """The machines of each node group that hold a place, and what could not be asked."""
    asking = Asking(stack)
    found = [_find_group(asking, group, hosts) for group, hosts in groups.items()]
    return tuple(filter(None, found)), tuple(asking.problems)


def _find_group(
    asking: Asking, group: str, hosts: tuple[TopologyHost, ...]
) -> StandingMachines | None:
    wanted = [
        {"name": f"tag:{STACK_TAG}", "values": [asking.stack]},
        {"name": "tag:moe-infra:roles", "values": ["+".join(hosts[0].roles)]},
    ]
    ids = asking.ask(
        REPLACE,
        f"answer on which machines of {group} stand",
        _EXAMPLE,
        lambda: tuple(
            ec2.get_instances(filters=wanted, instance_state_names=list(HOLDING_ADDRESSES)).ids
        ),
    )
    if not ids:
        return None
    tags = {STACK_TAG: asking.stack, "moe-infra:roles": group}
    template = asking.ask(
        REPLACE, f"launch template of {group}", _EXAMPLE, lambda: read_template(tags=tags)
    )
    if template is None:
        return None
    return StandingMachines(
        group=group,
        hosts=tuple(host.name for host in hosts),
        ids=ids,
        template=template,
        subnet=find_subnet(asking, "subnet_id", str(template["subnet"])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedNetwork:
    """Where the stack would have its machines.

    Args:
        account: the configuration, with a subnet of the operator's own or the block of a network that is made.
        zone: of the capacity.
        stack: whose they are.
    """

    account: Account
    zone: Zone
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMachines(WantedNetwork):
    """What the stack would launch the machines of a node group from; hosts that the account names may be replaced.

    Args:
        instance_type: of the machines.
        capacity: with the network layout.
        weights: what first boot is told of them, in the words of `weights_of`, as far as it is known beforehand.
    """

    instance_type: InstanceType
    capacity: CapacityPlan
    weights: Mapping[str, str]

    @property
    def template(self) -> dict[str, object]:
        """What a launch template says that an operator chooses, in the words of `read_template`."""
        account = self.account
        return {
            "instance type": self.instance_type.id,
            "key_name": account.key_name,
            "root_volume_gib": account.root_volume_gib,
            "kms_key_arn": account.kms_key_arn or "",
            "network layout": layout_of(self.instance_type.interfaces(self.capacity.layout)),
            "reservation_id": account.reservation_id or "",
            **({"ami": account.ami} if account.ami else {}),
            **self.weights,
        }


def standing_problems(standing: StandingMachines, wanted: WantedMachines) -> Iterator[Problem]:
    """Why machines of a node group that stand would have to go."""
    stack, account = wanted.stack, wanted.account
    count = f"{len(standing.ids)} machine{'s' * (len(standing.ids) > 1)} of {standing.group}"
    give_back = f"`fab down --stack {stack}`, then `{give_back_machines(stack)}`"
    moved = network_problem(f"{count} stand", standing.subnet, wanted, give_back)
    if moved is not None:
        yield moved
        return
    launched = standing.template
    changed = [word for word, value in wanted.template.items() if launched[word] != value]
    if changed and not set(standing.hosts) & set(account.replace_machines):
        told = ", ".join(_told(word, launched[word], wanted.template[word]) for word in changed)
        yield _problem(
            REPLACE,
            f"{count} were launched with another {told}. A machine takes such a value at its launch alone.",
            f"To keep the machines, put the old value back. To replace some, type `fab down --stack {stack}`, then: "
            f"pulumi config set replace_machines {standing.hosts[0]} --stack {stack}",
            stack,
        )


def network_problem(
    stands: str, subnet: FoundSubnet | None, wanted: WantedNetwork, give_back: str
) -> Problem | None:
    """A network under machines that the configuration would change; None where it is the same, or nobody may ask.

    Args:
        stands: what stands in it, with its verb: `6 machines of decode stand`.
        subnet: where the machines stand.
        wanted: what the configuration says.
        give_back: what an operator types to give the machines back.
    """
    if subnet is None:
        return None
    own = wanted.account.subnet_id
    now = own or f"{host_subnet(wanted.account.vpc_cidr)} in {wanted.zone.zone_id}"
    was = subnet.id if own else f"{subnet.cidr_block} in {subnet.zone_id}"
    if was == now:
        return None
    return _problem(
        "moe-infra:subnet_id" if own else "moe-infra:vpc_cidr",
        f"{stands} in {was}, and the configuration wants {now}. A machine keeps its network.",
        f"Put the old value back. Or give the machines back first: {give_back}.",
        wanted.stack,
    )


def _problem(field: str, what: str, fix: str, stack: str) -> Problem:
    return Problem(
        rule="machines-stand",
        severity="error",
        file=f"stacks/Pulumi.{stack}.yaml",
        field=field,
        what=what,
        fix=fix,
    )


def _told(word: str, was: object, now: object) -> str:
    if isinstance(now, list):
        return word
    return f"{word} ({was or 'none'}; now {now or 'none'})"
