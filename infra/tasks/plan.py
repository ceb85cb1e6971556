"""`fab plan`: every process of a stack, for people, as JSON, explained, or as a picture."""

from __future__ import annotations

from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.inventory.book import name_origins
from infra.plan.document import plan_document
from infra.plan.process import Plan
from infra.render.firewall import UNFILTERED, firewall_document, firewall_listing, firewall_text
from infra.render.picture import draw_plan
from infra.render.plan_listing import plan_explanation, plan_listing
from infra.spec.nearest import nearest
from infra.tasks.choice import same_choice
from infra.tasks.options import Options
from infra.tasks.output import Output, table
from infra.tasks.picture_file import write_picture
from infra.tasks.stack_options import compile_chosen

EVERY_HOST = "all"


def run(options: Options, output: Output) -> int:
    """Print the plan. It is not judged: that is `fab check`."""
    compiled = compile_chosen(options, Catalog())
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
    names = [each.name for each in plan.hosts]
    if host not in (EVERY_HOST, *names):
        what = f"{plan.stack} has no host {host}."
        raise StackError("--firewall", what, nearest(host, [*names, EVERY_HOST]))
    chosen = names if host == EVERY_HOST else [host]
    output.document(firewall_document(plan, chosen))
    for name in chosen:
        rows = [("ports", "from", "for"), *firewall_listing(plan, name)]
        output.data(f"{name} ({plan.host(name).address})\n{table(rows)}\n")
    if host != EVERY_HOST:
        output.data(firewall_text(plan, host))
    output.data(UNFILTERED)
    output.next_command(f"fab up {same_choice(options)}")
    return 0
