"""How the machines of a stack are bought: instance types, reservation, placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from infra.catalog.instance_types import CapacityKind, InstanceType, read_instance_type
from infra.catalog.network_cards import LayoutPolicy
from infra.catalog.schema import Accelerator
from infra.errors import Problem, ProblemsFound
from infra.plan.topology import Topology, TopologyHost
from infra.provision.config_problems import stack_problem
from infra.spec.stack import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """What is launched, and from which capacity.

    Args:
        instance_types: by accelerator id.
        num_machines: by instance type.
        num_addresses: addresses that all hosts together take from their subnet.
    """

    kind: CapacityKind
    layout: LayoutPolicy
    instance_types: Mapping[str, InstanceType]
    num_machines: Mapping[str, int]
    num_addresses: int
    num_hosts: int

    @property
    def wants_placement_group(self) -> bool:
        """Whether a cluster placement group helps: blocks and reservations are placed already."""
        return self.kind == "on-demand" and self.num_hosts > 1

    @property
    def quotas(self) -> dict[str, int]:
        """VCPUs that are held against quotas of the account, by the quota's code: of what is bought on demand."""
        found: Counter[str] = Counter()
        for each in {each.id: each for each in self.instance_types.values()}.values():
            if self.kind == "on-demand" and each.on_demand_quota is not None:
                found[each.on_demand_quota] += each.num_vcpus * self.num_machines[each.id]
        return dict(found)

    def instance_type(self, host: TopologyHost) -> InstanceType:
        """What a host is launched as."""
        return self.instance_types[host.accelerator.id]


def plan_capacity(topology: Topology, wanted: Capacity | None) -> CapacityPlan:
    """The capacity of a topology, as its stack says.

    Raises:
        ProblemsFound: AWS does not rent an accelerator, or not in that way; the stack does not say
            how its machines are bought; one reservation would have to hold two instance types.
    """
    accelerators = {host.accelerator.id: host.accelerator for host in topology.hosts}
    problems = [
        problem for each in accelerators.values() if (problem := _not_rented(topology.stack, each))
    ]
    if problems:
        raise ProblemsFound(tuple(problems))
    instance_types = {
        name: read_instance_type(accelerator.instances["aws"])
        for name, accelerator in accelerators.items()
    }
    if wanted is None:
        raise ProblemsFound((_unsaid_problem(topology.stack, instance_types),))
    kind, layout = wanted.kind, wanted.network_layout
    problems = _capacity_problems(topology.stack, kind, instance_types)
    if problems:
        raise ProblemsFound(tuple(problems))
    num_addresses = sum(
        instance_types[host.accelerator.id].num_addresses(layout) for host in topology.hosts
    )
    return CapacityPlan(
        kind=kind,
        layout=layout,
        instance_types=instance_types,
        num_machines=Counter(instance_types[host.accelerator.id].id for host in topology.hosts),
        num_addresses=num_addresses,
        num_hosts=len(topology.hosts),
    )


def _not_rented(stack: str, accelerator: Accelerator) -> Problem | None:
    if "aws" in accelerator.instances:
        return None
    fix = "Set platform: existing-hosts and write an inventory."
    what = f"AWS rents no {accelerator.id}."
    return stack_problem("accelerator-not-rented", "platform", what, fix, stack)


def _unsaid_problem(stack: str, instance_types: Mapping[str, InstanceType]) -> Problem:
    """A stack that leaves open how its machines are bought: no way of buying is taken for granted."""
    sold = [set(each.capacity_kinds) for each in instance_types.values()]
    can_be_reserved = len(sold) == 1  # one reservation holds one instance type
    kinds = [
        kind
        for kind in get_args(CapacityKind)
        if all(kind in each for each in sold) and (can_be_reserved or kind == "on-demand")
    ]
    machines = " and ".join(each.id for each in instance_types.values())
    what = f"It does not say how {machines} is bought; no kind is a default."
    named = " or ".join(kinds) or "on-demand"
    return _capacity_problem(
        stack, what, f"Write capacity: {{kind: KIND}} with {named}.", "capacity-unsaid"
    )


def _capacity_problems(
    stack: str, kind: CapacityKind, instance_types: Mapping[str, InstanceType]
) -> list[Problem]:
    names = {each.id: each for each in instance_types.values()}
    problems = [
        _capacity_problem(
            stack, f"{name} is not sold as {kind}.", f"Use {' or '.join(each.capacity_kinds)}."
        )
        for name, each in names.items()
        if kind not in each.capacity_kinds
    ]
    if not problems and kind != "on-demand" and len(names) > 1:
        what = f"One reservation cannot hold {' and '.join(names)}."
        problems.append(
            _capacity_problem(
                stack, what, "Give every role the same accelerator, or use on-demand."
            )
        )
    return problems


def _capacity_problem(stack: str, what: str, fix: str, rule: str = "capacity-not-sold") -> Problem:
    return stack_problem(rule, "capacity.kind", what, fix, stack)
