"""Hosts in what a task says: always by both names, the plan's and the inventory's, as `decode-0 (rack7-gpu12)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from infra.errors import InfraError
from infra.tasks.options import Options
from infra.tasks.shared_options import ROLES

if TYPE_CHECKING:  # half of the tasks reach no host
    from infra.inventory.hosts import Inventory, InventoryHost

# Groups of hosts that serve, and names as a plan gives them: an inventory of such names has no others.
_GROUPS = {*ROLES, "router", "edge"}
_PLANS = re.compile(rf"(?:{'|'.join(sorted(_GROUPS))})-\d+")
# Commands, in which a host has one name.
_COMMANDS = r"`[^`]*`|\b(?:fab|ssh|sudo) [^`\n]*"
# A name of letters alone may be a word of ours.
_NO_WORD = re.compile(r"[\d._-]")


class BothNames:
    """Writes both names of a host wherever a text names it by one of them; commands stay as they are."""

    def __init__(self) -> None:
        """Know no host."""
        self._pairs: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, machines: Mapping[str, str]) -> None:
        """From here on name these hosts by both names.

        Args:
            machines: the inventory's name of each host, by the plan's.
        """
        for plan, machine in machines.items():
            if plan != machine:
                self._pairs |= {plan: f"{plan} ({machine})", f"{plan} ({machine})": ""}
                if _NO_WORD.search(machine):
                    self._pairs[machine] = f"{plan} ({machine})"
        if self._pairs:
            longest = sorted(self._pairs, key=len, reverse=True)
            names = "|".join(map(re.escape, longest))
            self._pattern = re.compile(
                rf"{_COMMANDS}|(?<![\w./@-])(?P<name>{names})(?![\w/-]|\.\w)"
            )

    def __call__(self, text: str) -> str:
        """The text, with both names of every host that it names."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda m: self._pairs.get(m["name"] or "") or m[0], text)


def machines_of(hosts: Mapping[str, InventoryHost]) -> dict[str, str]:
    """The inventory's name of each host, by the plan's; of hosts by the plan's names."""
    return {name: host.machine for name, host in hosts.items() if host.machine is not None}


def serving(options: Options, inventory: Inventory) -> dict[str, InventoryHost]:
    """Which host of an inventory serves as which of the plan's, by the plan's name; {} where nothing tells.

    For tasks that act on what hosts hold, whatever the stack file says. Where the inventory uses the plan's names, or
    the file cannot be read, there is nothing to tell.
    """
    serve = [host for host in inventory.hosts if {*host.groups} & _GROUPS] or inventory.hosts
    if all(_PLANS.fullmatch(host.name) for host in serve):
        return {}
    # Reading a stack takes half of a short command's start.
    from infra.catalog.load import Catalog  # noqa: PLC0415
    from infra.plan.compile import compile_stack  # noqa: PLC0415
    from infra.tasks.stack_options import chosen_stack  # noqa: PLC0415

    try:
        compiled = compile_stack(chosen_stack(options), catalog=Catalog(), inventory=inventory)
    except InfraError:  # it says what the next `up` would start, and nothing of what is there
        return {}
    return dict(compiled.book.hosts)
