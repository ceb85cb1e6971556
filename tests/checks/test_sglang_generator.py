"""The selections of the SGLang cookbook's generator: what it offers is accepted, what it refuses is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.plan.compile import compile_stack
from infra.plan.process import Plan
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import parse_yaml
from tests.plan.generated import loaded
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

CATALOG = Catalog()
GENERATOR = parse_yaml(
    (PROJECT / "tests" / "recipes" / "sglang-generator.yaml").read_text(encoding="utf-8")
)


@pytest.mark.slow
def test_eighty_selections_are_accepted_and_the_others_refused(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for hardware, quantization in itertools.product(
        GENERATOR["hardware"], GENERATOR["quantizations"]
    ):
        for options in itertools.product((True, False), repeat=len(GENERATOR["options"])):
            chosen = dict(zip(GENERATOR["options"], options, strict=True))
            stack = loaded(_selection(hardware, quantization, chosen))
            plan = compile_stack(stack, catalog=CATALOG).plan
            refused = [str(p) for p in judge_stack(plan, stack, CATALOG) if p.blocks]
            offered = _is_offered(hardware, quantization, chosen)
            assert bool(refused) != offered, (hardware, quantization, chosen, refused)
            counts["offered" if offered else "refused"] += 1
            if offered:
                _accepted_by_the_engine(plan, tmp_path / f"{sum(counts.values())}")
    assert counts == {"offered": 80, "refused": 112}


def _is_offered(hardware: str, quantization: str, chosen: Mapping[str, bool]) -> bool:
    fact = GENERATOR["hardware"][hardware]
    return quantization in fact["quantizations"] and (fact["drafts"] or not chosen["draft"])


def _selection(hardware: str, quantization: str, chosen: Mapping[str, bool]) -> dict[str, Any]:
    tensor = GENERATOR["hardware"][hardware]["tensor_parallel"]
    features = [name for name in ("reasoning", "tools") if chosen[name]]
    role: dict[str, Any] = {"tensor_parallel": tensor, "features": features}
    idle = CATALOG.accelerator(hardware).devices_per_host - tensor
    if idle:
        role["devices_idle"] = idle
    if chosen["data-parallel-attention"]:
        role |= {"data_parallel": tensor, "flags": {"enable-dp-attention": True}}
    draft = {"draft": {"checkpoint": "kimi-k2.5-eagle3", "num_speculative_tokens": 3}}
    return {
        "checkpoint": f"kimi-k2.5-{quantization}",
        "accelerator": hardware,
        "engine": GENERATOR["engine"],
        "platform": "existing-hosts",
        "roles": {"unified": role},
        "defaults": {"max_model_len": 128000},
        **(draft if chosen["draft"] else {}),
    }


def _accepted_by_the_engine(plan: Plan, folder: Path) -> None:
    write_checkpoints(plan, CATALOG, folder)
    (process,) = (process for process in plan.processes if process.kind == "engine")
    settings, _ = configured(plan, process, engine_world(plan, process, CATALOG, folder), folder)
    assert settings.kv_tokens > 0
