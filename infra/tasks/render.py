"""`fab render`: the files that `up` would install, or the objects that a cluster would be given, in a folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import never_made
from infra.errors import ProblemsFound
from infra.inventory.book import serving_hosts
from infra.inventory.hosts import Inventory
from infra.plan.compile import CompiledStack
from infra.plan.imported import read_plan
from infra.plan.process import Plan
from infra.render.host_paths import firewall_path
from infra.render.host_state import host_state
from infra.render.inventory_file import inventory_from_plan, inventory_text
from infra.render.items import HostState
from infra.render.stack_document import stack_document
from infra.render.wanted_tuning import Tuning
from infra.spec.stack import KUBERNETES
from infra.tasks.choice import chosen_inventory, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.platforms import refuse_kubernetes
from infra.tasks.reached_hosts import host_states
from infra.tasks.rendered_folder import write_below
from infra.tasks.stack_options import compile_chosen


def run(options: Options, output: Output) -> int:
    """Write `<folder>/<host>/<path on the host>`, each host's documents, the stack's, and an inventory."""
    folder = Path(options.needed("to"))
    catalog = Catalog()
    plan_file = options.text("plan")
    if plan_file is None:
        compiled = compile_chosen(options, catalog)
        if compiled.plan.platform in KUBERNETES:
            return _render_manifests(compiled, folder, catalog, output)
        plan, states = compiled.plan, host_states(compiled, catalog)
        inventory = chosen_inventory(options, compiled.stack.name)
        names = None if inventory is None else inventory_names(plan, inventory)
        if compiled.book.is_documentation:
            output.message("There is no inventory: addresses are documentation addresses.")
    else:
        plan = read_plan(Path(plan_file))
        refuse_kubernetes(plan_file, plan.stack, plan.platform)
        if wrong := never_made(plan, plan_file, catalog):
            raise ProblemsFound(wrong)
        states, names = plan_states(plan, catalog), {host.name: host.name for host in plan.hosts}
    files = rendered_files(plan, states, names)
    write_below(folder, files)
    _tell_files(plan.stack, folder, files, output)
    output.data(f"{len(files)} files of {len(states)} hosts are in {folder}.")
    output.next_command(
        f"fab up {same_choice(options)}"
        if plan_file is None
        else f"fab rehearse --plan {shlex.quote(plan_file)}"
    )
    return 0


def _render_manifests(
    compiled: CompiledStack, folder: Path, catalog: Catalog, output: Output
) -> int:
    """Write what Kubernetes would be given."""
    # Pulumi's modules come with it, and the other platforms can do without
    from infra.tasks.manifests import manifests_of  # noqa: PLC0415

    found = manifests_of(compiled, catalog)
    for note in found.notes:
        output.message(note)
    write_below(folder, found.files)
    # names follow contents: what another rendering has left would be applied beside this one
    of_another = [
        path.name
        for path in sorted((folder / "kubernetes").glob("*.yaml"))
        if f"kubernetes/{path.name}" not in found.files
    ]
    if of_another:
        listed = ", ".join(of_another)
        output.message(
            f"{folder}/kubernetes holds files of another rendering: {listed}. Remove them."
        )
    _tell_files(compiled.plan.stack, folder, found.files, output)
    output.data(f"{len(found.files)} objects of namespace {found.namespace} are in {folder}.")
    output.next_command(f"pulumi preview --stack {compiled.stack.name}")
    return 0


def _tell_files(stack: str, folder: Path, files: Mapping[str, str], output: Output) -> None:
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": stack,
            "ok": True,
            "folder": str(folder),
            "files": sorted(files),
        }
    )


def plan_states(plan: Plan, catalog: Catalog) -> dict[str, HostState]:
    """Host states of a plan that came without its stack: the profile's own defaults."""
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    return {
        host.name: host_state(plan, host.name, tuning=tuning, catalog=catalog)
        for host in plan.hosts
    }


def inventory_names(plan: Plan, inventory: Inventory) -> dict[str, str]:
    """What the inventory calls each plan host."""
    found = serving_hosts([(host.name, host.groups[0]) for host in plan.hosts], inventory)
    return {name: host.name for name, host in found.items()}


def rendered_files(
    plan: Plan, states: Mapping[str, HostState], names: Mapping[str, str] | None
) -> dict[str, str]:
    """Text by path below the folder; secrets are not among them."""
    enable = next((state.enable for state in states.values()), ())
    files = {
        "inventory.yml": inventory_text(inventory_from_plan(plan, user="root")),
        "stack.json": _document(stack_document(plan, enable, names)),
    }
    for host, state in states.items():
        files[f"{host}/host-state.json"] = _document(state.as_document())
        for item in state.of_groups("files"):
            if "content" in item.details:
                files[host + item.target] = str(item.details["content"])
        for item in state.of_groups("firewall"):
            files[host + firewall_path(state.stack)] = str(item.details["content"])
    return files


def _document(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
