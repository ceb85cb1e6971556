"""What `fab render` writes for each shipped stack, imported: the same processes come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.plan.compile import compile_file
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import image_entrypoints, import_recipe
from infra.plan.foreign.script import read_script
from infra.plan.process import Process
from infra.render.compile_cache import cache_variables
from infra.render.host_paths import process_folder
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from infra.spec.load import load_stack, stack_names
from infra.spec.stack import KUBERNETES
from tests.plan.foreign.importing import CATALOG

TEST_STACKS = sorted(str(path) for path in (Path(__file__).parents[2] / "stacks").glob("*.yaml"))


def rendered(stack: str, folder: Path) -> list[tuple[Process, Path]]:
    """Each process of a stack with its launch script, as `fab render` lays it out."""
    compiled = compile_file(stack, catalog=CATALOG)
    plan, found = compiled.plan, []
    tuning = Tuning(profile=CATALOG.tuning(plan.tuning), enable=compiled.resolved.tuning_enabled)
    files = {
        host.name: {
            item.target: str(item.details["content"])
            for item in host_state(plan, host.name, tuning=tuning, catalog=CATALOG).items
            if item.kind == "file" and "content" in item.details
        }
        for host in plan.hosts
    }
    for process in plan.processes:
        if (
            process.kind == "edge"
        ):  # its words name a file that is made of the plan: nobody imports that
            continue
        own = folder / process.id.replace("/", "-")
        own.mkdir()
        where = process_folder(plan.stack, process)
        for name in ("launch", "environment"):
            (own / name).write_text(files[process.host][f"{where}/{name}"])
        found.append((process, own / "launch"))
    return found


ON_HOSTS = [name for name in stack_names() if load_stack(name).spec.platform not in KUBERNETES]


@pytest.mark.parametrize("stack", [*ON_HOSTS, *TEST_STACKS], ids=lambda s: Path(s).stem)
def test_a_rendered_script_starts_the_process_that_was_planned(stack: str, tmp_path: Path) -> None:
    plan = compile_file(stack, catalog=CATALOG).plan
    for process, script in rendered(stack, tmp_path):
        recipe = read_script(script.read_text(), {}, image_entrypoints(CATALOG), script.parent)
        (launch,) = recipe.launches
        assert tuple(word.text for word in launch.words) == process.argv
        env = {name: word.text for name, word in launch.env.items()}
        # a virtual environment stands on PATH
        prepended = {n: v for n, v in env.items() if n in launch.prepended and n != "PATH"}
        assert prepended == dict(process.env_prepend)
        if launch.container is not None:  # without one systemd reads the variables, not the script
            # a router's container has no home but its scratch space
            own = {"HOME"} if process.kind == "router" else set()
            own |= cache_variables(plan, process, CATALOG).keys()
            assert env.keys() - launch.prepended - own == process.env.keys()
            assert all(env[name] == value for name, value in process.env.items())


@pytest.mark.parametrize("stack", ["h200-tp8", "mi300x-tp8", "h200-sglang-tp8", "a3-dp4tp4"])
def test_a_rendered_script_is_read_as_the_plan_says(stack: str, tmp_path: Path) -> None:
    for process, script in rendered(stack, tmp_path):
        told = Told(accelerator=compile_file(stack, catalog=CATALOG).plan.hosts[0].accelerator)
        (found,) = import_recipe(script, told, {}, CATALOG).assembled.plan.processes
        assert found.argv == process.argv
        assert found.dp_ranks == process.dp_ranks
        assert found.devices == process.devices
        assert [(b.name, b.port, b.count) for b in found.binds] == [
            (b.name, b.port, b.count) for b in process.binds
        ]
        assert {m.target for m in process.mounts} <= {m.target for m in found.mounts}
