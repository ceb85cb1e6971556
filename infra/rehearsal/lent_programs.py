"""Compiles what simulated hosts run and cannot write: else each start there would compile it again."""

from __future__ import annotations

import compileall
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from infra.catalog.load import Catalog
from infra.catalog.router_release import RouterRelease
from infra.plan.process import Plan
from infra.rehearsal import engine

# Python's own switch against it, which may be set where the rehearsal is started.
SWITCH = "PYTHONDONTWRITEBYTECODE"


def compile_lent_programs(plan: Plan, catalog: Catalog) -> None:
    """Compile the simulated engine, the stand-ins and the routers of a plan, as far as they are not."""
    rehearsal = Path(engine.__file__).resolve().parents[1]
    for folder in ("engine", "standins"):
        compileall.compile_dir(rehearsal / folder, quiet=2)
    for process in plan.processes:
        release = catalog.router_of(process.argv) if process.kind == "router" else None
        if release is not None:
            _compile_router(release)


def router_module(release: RouterRelease) -> str | None:
    """The module that a router's program begins with; None where no wheel of this environment has it."""
    if release.package is None:
        return None
    words = release.program
    if words[:2] == ("python", "-m"):
        return words[2]
    scripts = importlib.metadata.entry_points(group="console_scripts", name=words[0])
    return next((script.module for script in scripts), None)


def compiled_file(module: str) -> Path | None:
    """Where Python keeps a module's compiled form; None where its package is not installed."""
    package, _, name = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(importlib.util.cache_from_source(str(Path(spec.origin).parent / f"{name}.py")))


def _compile_router(release: RouterRelease) -> None:
    """Import it once where Python can keep what it compiles: its own modules and all that they import.

    Whether it can be imported is not our question: the router says so itself when it is started.
    """
    module = router_module(release)
    place = None if module is None else compiled_file(module)
    if place is None or place.exists():
        return
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    subprocess.run(
        [sys.executable, "-P", "-c", f"import {module}"],  # not one of the folder that we are in
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
