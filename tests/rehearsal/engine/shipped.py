"""Processes of a plan configured by the simulated engines, without starting them."""

from __future__ import annotations

import json
from pathlib import Path

from infra.catalog.load import Catalog
from infra.plan.process import Plan, Process
from infra.rehearsal.checkpoints import checkpoints_of
from infra.rehearsal.engine import sglang_config, start, vllm_config
from infra.rehearsal.engine.settings import Release, Settings
from infra.rehearsal.engine.world import World, read_world


def write_checkpoints(plan: Plan, catalog: Catalog, folder: Path) -> None:
    """The plan's checkpoints below a folder in the place of its weights path."""
    for checkpoint in checkpoints_of(plan, catalog):
        place = Path(checkpoint.path.replace(plan.weights_path, str(folder)))
        place.mkdir(parents=True)
        for name, content in checkpoint.contents.items():
            (place / name).write_bytes(content)


def engine_world(plan: Plan, process: Process, catalog: Catalog, folder: Path) -> World:
    """The simulated host of a process."""
    host = plan.host(process.host)
    accelerator = catalog.accelerator(host.accelerator)
    document = {
        "host": host.name,
        "address": host.address,
        "vendor": accelerator.vendor,
        "accelerator": host.accelerator,
        "generation": accelerator.generation,
        "fabric_spans_hosts": accelerator.fabric_spans_hosts,
        "memory_mib": accelerator.memory_mib,
        "num_devices": host.num_devices,
    }
    (folder / "host.json").write_text(json.dumps(document))
    return read_world({**process.env, "MOE_REHEARSAL_STATE": str(folder)})


def configured(
    plan: Plan, process: Process, world: World, folder: Path
) -> tuple[Settings, list[str]]:
    """The settings of a process with its KV cache, and the engine's warnings.

    Raises:
        Failed: the engine refuses the configuration.
        Refused: its parser does.
    """
    argv = [word.replace(plan.weights_path, str(folder)) for word in process.argv]
    program, arguments = start.program_of(argv)
    release = _release(plan)
    if program != "vllm":
        args = sglang_config.parse_arguments(arguments, program, release)
        settings, _ = sglang_config.configure(args, release, world, dict(process.env))
        return sglang_config.fit(settings, world), []
    args, _ = vllm_config.parse_arguments(arguments, release)
    settings, warnings = vllm_config.configure(args, release, world, dict(process.env))
    return vllm_config.fit(settings, args, world), warnings


def _release(plan: Plan) -> Release:
    name, version = plan.engine.name, plan.engine.version
    if name == "vllm-ascend":
        return Release("vllm-ascend", version.split("rc")[0], version)
    return Release("sglang" if name == "sglang" else "vllm", version, "")
