"""`fab facts`: what the hosts of a stack are, and the file beside the inventory that says so."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.inventory.facts_file import facts_path
from infra.launch.answering import AnsweringFleet
from infra.launch.preflight.fact_rows import FactRow, fact_row
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.waves import look
from infra.tasks.choice import inventory_path, needed_inventory, same_choice
from infra.tasks.facts_writing import add_facts
from infra.tasks.limit import left_out, limit_words, limited
from infra.tasks.options import Options
from infra.tasks.output import Output, table, with_failures
from infra.tasks.reached_hosts import make_deployment
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts


def run(options: Options, output: Output) -> int:
    """Look at every host, print what it is, and record what the plan depends on; 4 when a host is away."""
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    with open_fleet(options, compiled.book.hosts, output) as fleet:
        answering = AnsweringFleet(fleet)
        deployment, _ = make_deployment(compiled, catalog, answering, output)
        chosen = limited(options, deployment.states, compiled.book.hosts)
        answering.leave_out(left_out(deployment.states, chosen))
        scene = look(deployment, catalog, "full", {}).scene
    failures = tuple(one for one in answering.failures if one.host in chosen)
    path = facts_path(inventory_path(options, compiled.plan.stack))
    listed = needed_inventory(options, compiled.plan.stack).hosts
    names = {host.service_address: host.name for host in listed}
    records = {}
    for name, host in scene.hosts.items():
        address = compiled.plan.host(name).address
        records[names[address]] = observed_record(host, address)
    changed = add_facts(path, records, ())
    rows = [fact_row(scene, name) for name in scene.hosts]
    document: dict[str, object] = {
        "schema_version": 1,
        "stack": compiled.plan.stack,
        "ok": True,
        "file": str(path),
    }
    document |= {"hosts": [row.as_document() for row in rows]}
    output.document(with_failures(document, failures))
    output.data(_listing(rows))
    output.data(f"{'Written' if changed else 'Unchanged'}: {path}")
    if failures:
        output.failed_hosts(failures, len(chosen))
        output.message("What the file says of them stays as it was.")
        output.next_command(f"fab facts {same_choice(options)}{limit_words(options)}")
        return HostsFailed.exit_code
    output.next_command(f"fab preflight {same_choice(options)}")
    return 0


def _listing(rows: list[FactRow]) -> str:
    head = (
        "host",
        "accelerators",
        "driver",
        "interface",
        "HCAs",
        "memory",
        "kernel pages",
        "clock",
    )
    return table([head, *(row.cells() for row in rows)])
