"""Every engine process of every shipped stack is one that its pinned engine release accepts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.process import Plan, Process
from infra.rehearsal.checkpoints import checkpoints_of
from infra.rehearsal.engine import proxy, sglang_config, start, vllm_config
from infra.rehearsal.engine.settings import Release
from infra.rehearsal.engine.world import World, read_world

ROOT = Path(__file__).parents[3]
STACKS = sorted(
    path.stem for path in (ROOT / "stacks").glob("*.yaml") if not path.name.startswith("Pulumi")
)


@pytest.mark.parametrize("name", STACKS)
def test_every_process_is_accepted(name: str, tmp_path: Path) -> None:
    catalog = Catalog()
    plan = compile_file(str(ROOT / "stacks" / f"{name}.yaml"), catalog=catalog).plan
    _write_checkpoints(plan, catalog, tmp_path)
    for process in plan.processes:
        argv = [word.replace(plan.weights_path, str(tmp_path)) for word in process.argv]
        if process.kind == "engine":
            _configure(plan, process, argv, _world(plan, process, catalog, tmp_path))
        elif "load_balance_proxy" in " ".join(argv):
            proxy._parse(start.program_of(argv)[1])


def _write_checkpoints(plan: Plan, catalog: Catalog, folder: Path) -> None:
    for checkpoint in checkpoints_of(plan, catalog):
        place = Path(checkpoint.path.replace(plan.weights_path, str(folder)))
        place.mkdir(parents=True)
        for name, text in checkpoint.documents.items():
            (place / name).write_text(text)


def _world(plan: Plan, process: Process, catalog: Catalog, folder: Path) -> World:
    host = next(host for host in plan.hosts if host.name == process.host)
    accelerator = catalog.accelerator(host.accelerator)
    document = {
        "host": host.name,
        "address": host.address,
        "vendor": accelerator.vendor,
        "accelerator": host.accelerator,
        "memory_mib": accelerator.memory_mib,
        "num_devices": host.num_devices,
    }
    (folder / "host.json").write_text(json.dumps(document))
    return read_world({**process.env, "MOE_REHEARSAL_STATE": str(folder)})


def _configure(plan: Plan, process: Process, argv: list[str], world: World) -> None:
    program, arguments = start.program_of(argv)
    release = _release(plan)
    if program != "vllm":
        args = sglang_config.parse_arguments(arguments, program, release)
        settings, _ = sglang_config.configure(args, release, world)
        assert sglang_config.fit(settings, world).kv_tokens > 0
        return
    args, _ = vllm_config.parse_arguments(arguments, release)
    env: Mapping[str, str] = process.env
    settings, warnings = vllm_config.configure(args, release, world, dict(env))
    assert vllm_config.fit(settings, args, world).kv_tokens >= settings.max_model_len
    assert not [text for text in warnings if "Unknown vLLM environment variable" in text]
    place = settings.parallel
    ranks = range(place.first_rank, place.first_rank + place.local) if place.has_engine else ()
    assert tuple(ranks) == tuple(process.dp_ranks)


def _release(plan: Plan) -> Release:
    name, version = plan.engine.name, plan.engine.version
    if name == "vllm-ascend":
        return Release("vllm-ascend", version.split("rc")[0], version)
    return Release("sglang" if name == "sglang" else "vllm", version, "")
