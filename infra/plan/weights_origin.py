"""Refuses a stack whose `weights.source` says nothing that staging could use."""

from __future__ import annotations

from infra.errors import StackError
from infra.inventory.hosts import Inventory, InventoryHost
from infra.plan.resolve import Problems
from infra.spec.load import LoadedStack
from infra.spec.weights_source import (
    FIELD,
    HostSource,
    parse_weights_source,
    refuse_plain_token,
)

RULE = "weights-source"


def refuse_unusable_source(stack: LoadedStack, problems: Problems) -> None:
    """Add a problem for a `weights.source` that is none of the forms, or would show a token; every inventory aside."""
    written = stack.spec.weights.source
    if written is None:
        return
    try:
        refuse_plain_token(parse_weights_source(written), dict(stack.spec.secrets.items()))
    except StackError as error:
        problems.add(RULE, FIELD, error.what, error.fix)


def refuse_unknown_host(
    stack: LoadedStack, inventory: Inventory | None, problems: Problems
) -> None:
    """Add a problem for a `host:NAME` that the inventory lacks; without an inventory nobody can tell."""
    written = stack.spec.weights.source
    if written is None or inventory is None:
        return
    try:
        source = parse_weights_source(written)
    except StackError:  # told by `refuse_unusable_source`
        return
    if isinstance(source, HostSource):
        try:
            source_host(source.name, inventory)
        except StackError as error:
            problems.add(RULE, FIELD, error.what, error.fix)


def source_host(name: str, inventory: Inventory) -> InventoryHost:
    """The host that holds the weights already.

    Raises:
        StackError: the inventory has no such host.
    """
    host = inventory.host(name)
    if host is None:
        known = ", ".join(one.name for one in inventory.hosts) or "none"
        what = f"The inventory {inventory.path} has no host {name}; it has {known}."
        raise StackError(FIELD, what, "Add it there, or name one of its hosts.")
    return host
