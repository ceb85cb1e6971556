"""`fab plan`: every process of a stack, for people, as JSON, explained, or as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.inventory.book import name_origins, serving_hosts
from infra.inventory.hosts import Inventory
from infra.plan.document import plan_document
from infra.plan.process import Plan
from infra.render.firewall import UNFILTERED, firewall_document, firewall_listing, firewall_text
from infra.render.picture import draw_plan
from infra.render.plan_listing import plan_explanation, plan_listing
from infra.render.secret_listing import secret_listing
from infra.spec.nearest import nearest
from infra.tasks.choice import chosen_inventory, same_choice
from infra.tasks.options import Options
from infra.tasks.output import AsWritten, Output, table
from infra.tasks.picture_file import write_picture
from infra.tasks.stack_options import compile_chosen

EVERY_HOST = "all"
MOST_TOLD = 8  # of a stack's hosts, in a message


def run(options: Options, output: Output) -> int:
    """Print the plan. It is not judged: that is `fab check`."""
    catalog = Catalog()
    compiled = compile_chosen(options, catalog)
    output.complete.reach({} if compiled.book.is_documentation else compiled.book.hosts)
    is_documentation = compiled.book.is_documentation
    picture = options.text("picture")
    if picture is not None:
        write_picture(Path(picture), draw_plan(compiled.plan))
        output.message(f"Drawn: {picture}")
    host = options.text("firewall")
    if host is not None:
        return _tell_firewall(compiled.plan, host, options, output)
    output.document(plan_document(compiled.plan))
    if options.is_on("explain"):
        if not is_documentation:
            output.data("\n".join(name_origins(compiled.book)) + "\n")
        output.data(plan_explanation(compiled.plan, documentation_addresses=is_documentation))
    else:
        output.data(plan_listing(compiled.plan, documentation_addresses=is_documentation))
    if secrets := secret_listing(compiled.plan, catalog):
        output.data(secrets)
    output.next_command(f"fab check {same_choice(options)}")
    return 0


def _tell_firewall(plan: Plan, host: str, options: Options, output: Output) -> int:
    """Print who is let in on each host, and of one host the rules that it would load.

    Raises:
        StackError: the stack closes no hosts, or has no such host.
    """
    if plan.firewall is None:
        fix = "Write `firewall: plan`, with `clients` and `monitors`."
        raise StackError("--firewall", f"{plan.stack} leaves its hosts as open as they are.", fix)
    names = _names(plan, chosen_inventory(options, plan.stack))
    if host not in (EVERY_HOST, *names, *names.values()):
        shown = [name if own == name else f"{name} ({own})" for name, own in names.items()]
        what = f"{plan.stack} has no host {host}: it has {', '.join(shown[:MOST_TOLD])}"
        what += f" and {len(shown) - MOST_TOLD} more." if len(shown) > MOST_TOLD else "."
        raise StackError("--firewall", what, nearest(host, [*names, *names.values(), EVERY_HOST]))
    chosen = (
        list(names) if host == EVERY_HOST else [host if host in names else _plans_name(names, host)]
    )
    output.document(firewall_document(plan, chosen))
    for name in chosen:
        rows = [("ports", "from", "for"), *firewall_listing(plan, name)]
        output.data(f"{name} ({plan.host(name).address})\n{table(rows)}\n")
    if host != EVERY_HOST:
        output.data(AsWritten(firewall_text(plan, chosen[0])))
    output.data(UNFILTERED)
    output.next_command(f"fab up {same_choice(options)}")
    return 0


def _names(plan: Plan, inventory: Inventory | None) -> dict[str, str]:
    """By the plan's name of a host, the inventory's: the same where there is no inventory."""
    if inventory is None:
        return {host.name: host.name for host in plan.hosts}
    found = serving_hosts([(host.name, host.roles[0]) for host in plan.hosts], inventory)
    return {name: host.name for name, host in found.items()}


def _plans_name(names: Mapping[str, str], own: str) -> str:
    """The plan's name of a host of the inventory."""
    return next(name for name, each in names.items() if each == own)
