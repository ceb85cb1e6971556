"""The release that `up` and `diff` work on: compiled from the stack, or kept on its hosts."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.inventory.book import match_hosts
from infra.inventory.hosts import Inventory, InventoryHost
from infra.launch.deployment import Limits
from infra.launch.releases import find_kept
from infra.plan.compile import CompiledStack
from infra.plan.process import Plan
from infra.tasks.choice import chosen_name, needed_inventory
from infra.tasks.judging import refuse_problems
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.reached_hosts import PlacedPlan
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRelease:
    """A plan, and the hosts that exist for it.

    Args:
        enable: tuning items that the stack switches on beyond its profile.
        hosts: the inventory's entry of each plan host.
        spares: the inventory's other hosts; an earlier release may have used them.
    """

    plan: Plan
    enable: tuple[str, ...]
    hosts: Mapping[str, InventoryHost]
    spares: Mapping[str, InventoryHost]

    @property
    def reached(self) -> dict[str, InventoryHost]:
        """Every host that a request may go to."""
        return {**self.spares, **self.hosts}

    @property
    def placed(self) -> PlacedPlan:
        """The plan on its own hosts."""
        return PlacedPlan(plan=self.plan, enable=self.enable, hosts=self.hosts)


def chosen_release(options: Options, catalog: Catalog, output: Output) -> ChosenRelease:
    """The release of `--release`, read from the hosts that keep it, else the stack's.

    Raises:
        ProblemsFound: a rule refuses the stack.
        StackError: no such release is kept, or it was made for other addresses.
    """
    wanted = options.text("release")
    if wanted is not None:
        return kept_release(options, wanted, output)
    compiled = compile_for_hosts(options, catalog)
    refuse_problems(compiled, catalog, output)
    return release_of_file(options, compiled)


def release_of_file(options: Options, compiled: CompiledStack) -> ChosenRelease:
    """The release that a stack file says."""
    inventory = needed_inventory(options, compiled.plan.stack)
    return ChosenRelease(
        plan=compiled.plan,
        enable=compiled.stack.spec.enabled_tuning,
        hosts=compiled.book.hosts,
        spares=spare_hosts(compiled.book.hosts, inventory),
    )


def spare_hosts(
    used: Mapping[str, InventoryHost], inventory: Inventory
) -> dict[str, InventoryHost]:
    """The hosts of an inventory that a plan does not use."""
    taken = {host.service_address for host in used.values()}
    return {
        host.name: host
        for host in inventory.hosts
        if host.service_address not in taken and host.name not in used
    }


def kept_release(
    options: Options, wanted: str, output: Output, away: Container[str] = ()
) -> ChosenRelease:
    """A release that hosts keep, by its hash or the beginning of it.

    Args:
        options: of the task.
        wanted: the beginning of its hash.
        output: of the task.
        away: hosts of the inventory that need not be asked: they are known not to answer.

    Raises:
        StackError: none is kept, or it was made for other addresses.
    """
    name = chosen_name(options)
    inventory = needed_inventory(options, name)
    entries = {host.name: host for host in inventory.hosts}
    with open_fleet(options, entries, output) as fleet:
        asked = [entry for entry in entries if entry not in away]
        kept = find_kept(fleet, asked, (name, wanted), timeout_s=Limits().ask_s)
    plan = kept.plan
    hosts = match_hosts([(host.name, host.groups[0]) for host in plan.hosts], inventory)
    moved = [
        f"{host.name} was {host.address}, is {hosts[host.name].service_address}"
        for host in plan.hosts
        if host.address != hosts[host.name].service_address
    ]
    if moved:
        what = f"Release {plan.hash[:12]} was made for other hosts: {'; '.join(moved)}."
        raise StackError(f"{inventory.path}", what, "Bring the stack up from its file instead.")
    return ChosenRelease(
        plan=plan, enable=kept.enable, hosts=hosts, spares=spare_hosts(hosts, inventory)
    )
