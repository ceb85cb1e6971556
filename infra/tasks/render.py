"""`fab render`: the files that `up` would install, written to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.imported import read_plan
from infra.plan.process import Plan
from infra.render.host_state import HostState, Tuning, host_state
from infra.render.inventory_file import inventory_from_plan, inventory_text
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.reached_hosts import host_states
from infra.tasks.stack_options import compile_chosen, refuse_kubernetes


def run(options: Options, output: Output) -> int:
    """Write `<folder>/<host>/<path on the host>`, each host's state, and an inventory."""
    folder = Path(options.needed("to"))
    catalog = Catalog()
    plan_file = options.text("plan")
    if plan_file is None:
        compiled = compile_chosen(options, catalog)
        refuse_kubernetes(compiled.stack.file, compiled.plan.platform)
        plan, states = compiled.plan, host_states(compiled, catalog)
        if compiled.book.is_documentation:
            output.message("There is no inventory: addresses are documentation addresses.")
    else:
        plan = read_plan(Path(plan_file))
        refuse_kubernetes(plan_file, plan.platform)
        states = plan_states(plan, catalog)
    files = rendered_files(plan, states)
    _write(folder, files)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": plan.stack,
            "ok": True,
            "folder": str(folder),
            "files": sorted(files),
        }
    )
    output.data(f"{len(files)} files of {len(states)} hosts are in {folder}.")
    output.next_command(f"fab up --stack {plan.stack}")
    return 0


def plan_states(plan: Plan, catalog: Catalog) -> dict[str, HostState]:
    """Host states of a plan that came without its stack: the profile's own defaults."""
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    return {
        host.name: host_state(plan, host.name, tuning=tuning, catalog=catalog)
        for host in plan.hosts
    }


def rendered_files(plan: Plan, states: Mapping[str, HostState]) -> dict[str, str]:
    """Text by path below the folder; secrets are not among them."""
    files = {"inventory.yml": inventory_text(inventory_from_plan(plan, user="root"))}
    for host, state in states.items():
        document = json.dumps(state.as_document(), indent=1, ensure_ascii=False)
        files[f"{host}/host-state.json"] = document + "\n"
        for item in state.of_groups("files"):
            if "content" in item.details:
                files[host + item.target] = str(item.details["content"])
    return files


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.name == "launch":
                path.chmod(0o755)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}."
        raise StackError(f"--to {folder}", what, "Name a folder that can be written.") from error
