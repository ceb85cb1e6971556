"""What was found on the hosts of a plan before, from the facts file beside their inventory."""

from __future__ import annotations

from collections.abc import Mapping

from infra.inventory.facts_file import RecordedHost, facts_path, read_facts
from infra.inventory.hosts import InventoryHost
from infra.tasks.choice import inventory_path
from infra.tasks.options import Options


def recorded_facts(
    options: Options, stack_name: str, hosts: Mapping[str, InventoryHost]
) -> dict[str, RecordedHost]:
    """What the facts file says of each host of a plan, by the plan's name.

    Raises:
        StackError: the file is not what `fab facts` writes.
    """
    path = facts_path(inventory_path(options, stack_name))
    known = {found.address: found for found in read_facts(path).values()}
    return {
        name: known[host.service_address]
        for name, host in hosts.items()
        if host.service_address in known
    }
