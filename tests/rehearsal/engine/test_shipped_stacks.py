"""Every engine process of every shipped stack is one that its pinned engine release accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.process import Plan, Process
from infra.rehearsal.engine import proxy, start
from infra.rehearsal.engine.world import World
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

ROOT = Path(__file__).parents[3]
STACKS = sorted(
    path.stem for path in (ROOT / "stacks").glob("*.yaml") if not path.name.startswith("Pulumi")
)


@pytest.mark.parametrize("name", STACKS)
def test_every_process_is_accepted(name: str, tmp_path: Path) -> None:
    catalog = Catalog()
    plan = compile_file(str(ROOT / "stacks" / f"{name}.yaml"), catalog=catalog).plan
    write_checkpoints(plan, catalog, tmp_path)
    for process in plan.processes:
        if process.kind == "engine":
            _accepted(plan, process, engine_world(plan, process, catalog, tmp_path), tmp_path)
        elif "load_balance_proxy" in " ".join(process.argv):
            proxy._parse(start.program_of(list(process.argv))[1])


def _accepted(plan: Plan, process: Process, world: World, folder: Path) -> None:
    settings, warnings = configured(plan, process, world, folder)
    if plan.engine.name == "sglang":
        assert settings.kv_tokens > 0
        return
    assert settings.kv_tokens >= settings.max_model_len
    assert not [text for text in warnings if "Unknown vLLM environment variable" in text]
    place = settings.parallel
    ranks = range(place.first_rank, place.first_rank + place.local) if place.has_engine else ()
    assert tuple(ranks) == tuple(process.dp_ranks)
