"""The hosts that `--limit` names: by the plan's name or the inventory's."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from infra.errors import InfraError, PrerequisiteError, StackError
from infra.spec.nearest import nearest
from infra.tasks.options import Options

if TYPE_CHECKING:
    from infra.inventory.hosts import InventoryHost

LIMIT = "limit"


def limited(
    options: Options, hosts: Iterable[str], serving: Mapping[str, InventoryHost]
) -> tuple[str, ...]:
    """Those of some hosts that `--limit` names, in their own order; all where it was not given.

    Args:
        options: of the task.
        hosts: by the names that the task calls them.
        serving: hosts with both names, by the plan's.

    Raises:
        StackError: a host has no such name.
    """
    names = list(hosts)
    wanted = [each for word in options.words(LIMIT) for each in word.split(",") if each]
    if not wanted:
        return tuple(names)
    pairs = [(plan, host.machine) for plan, host in serving.items() if host.machine is not None]
    both = {
        other: own for plan, machine in pairs for own, other in ((plan, machine), (machine, plan))
    }
    aliases = {other: own for other, own in both.items() if own in names}
    aliases |= {name: name for name in names}
    for name in wanted:
        if name not in aliases:
            raise StackError(f"--{LIMIT}", f"There is no host {name}.", nearest(name, aliases))
    chosen = {aliases[name] for name in wanted}
    return tuple(name for name in names if name in chosen)


def left_out(hosts: Iterable[str], chosen: Collection[str]) -> dict[str, InfraError]:
    """Why the other hosts are not asked, by host; for a fleet that leaves hosts out (`AnsweringFleet`)."""
    what, fix = f"--{LIMIT} leaves it out.", "Leave --limit out to have all hosts asked."
    return {host: PrerequisiteError(host, what, fix) for host in hosts if host not in chosen}


def limit_words(options: Options) -> str:
    """The words that limit the same task again, with a space before them; "" for none."""
    words = [word for name in options.words(LIMIT) for word in (f"--{LIMIT}", name)]
    return f" {shlex.join(words)}" if words else ""
