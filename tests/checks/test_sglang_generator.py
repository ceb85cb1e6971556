"""The selections of the SGLang cookbook's generator: its commands are ours, and what it refuses is refused."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.checks.view import view_plan
from infra.engines.registry import ENGINES
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


def test_eighty_selections_compile_to_the_generators_commands() -> None:
    for hardware, quantization, chosen in _selections():
        if not _is_offered(hardware, quantization, chosen):
            continue
        plan = compile_stack(
            loaded(_selection(hardware, quantization, chosen)), catalog=CATALOG
        ).plan
        (process,) = (process for process in plan.processes if process.kind == "engine")
        published, variables = _published(hardware, quantization, chosen)
        told = dict(view_plan(plan, CATALOG).flags(process))
        for name in GENERATOR["deviations"]:
            published.pop(name, None)
            told.pop(name, None)
        env = {n: v for n, v in process.env.items() if n not in GENERATOR["environment"]}
        assert (told, env) == (published, variables), (hardware, quantization, chosen)


@pytest.mark.parametrize(("hardware", "quantization"), [("mi300x", "int4"), ("b300", "nvfp4")])
def test_no_selection_is_without_a_recipe(hardware: str, quantization: str) -> None:
    chosen = dict.fromkeys(GENERATOR["options"], False)
    stack = loaded(_selection(hardware, quantization, chosen))
    plan = compile_stack(stack, catalog=CATALOG).plan
    found = {problem.rule for problem in judge_stack(plan, stack, CATALOG)}
    assert not found & {"no-recipe", "recipe-release"}


@pytest.mark.slow
def test_eighty_selections_are_accepted_and_the_others_refused(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for hardware, quantization, chosen in _selections():
        stack = loaded(_selection(hardware, quantization, chosen))
        plan = compile_stack(stack, catalog=CATALOG).plan
        refused = [str(p) for p in judge_stack(plan, stack, CATALOG) if p.blocks]
        offered = _is_offered(hardware, quantization, chosen)
        assert bool(refused) != offered, (hardware, quantization, chosen, refused)
        counts["offered" if offered else "refused"] += 1
        if offered:
            _accepted_by_the_engine(plan, tmp_path / f"{sum(counts.values())}")
    assert counts == {"offered": 80, "refused": 112}


def _selections() -> Iterator[tuple[str, str, Mapping[str, bool]]]:
    """(hardware, quantisation, option → whether it is chosen): all that can be clicked together."""
    for hardware, quantization in itertools.product(GENERATOR["hardware"], GENERATOR["models"]):
        for options in itertools.product((True, False), repeat=len(GENERATOR["options"])):
            yield hardware, quantization, dict(zip(GENERATOR["options"], options, strict=True))


def _published(
    hardware: str, quantization: str, chosen: Mapping[str, bool]
) -> tuple[dict[str, object], dict[str, str]]:
    """The generator's command for a selection, as SGLang reads it, on our port: flags, variables."""
    fact, options = GENERATOR["hardware"][hardware], GENERATOR["options"]
    parts = [fact, *(options[name] for name, is_on in chosen.items() if is_on)]
    tensor = str(fact["tensor_parallel"])
    added = " ".join(part.get("flags", "") for part in parts).replace("{tensor}", tensor)
    command = GENERATOR["command"].format(
        model=GENERATOR["models"][quantization], tensor=tensor, flags=added
    )
    variables = {name: value for part in parts for name, value in part.get("env", {}).items()}
    release = CATALOG.release("sglang", GENERATOR["engine"]["version"])
    reading = ENGINES["sglang"].read(
        tuple(shlex.split(command)),
        variables,
        num_devices=8,
        flags=CATALOG.flags(release.flags_catalogue),
    )
    assert not reading.unknown
    return dict(reading.flags), variables


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
        "port": 30000,
        "roles": {"unified": role},
        "defaults": {"max_model_len": 128000},
        **(draft if chosen["draft"] else {}),
    }


def _accepted_by_the_engine(plan: Plan, folder: Path) -> None:
    write_checkpoints(plan, CATALOG, folder)
    (process,) = (process for process in plan.processes if process.kind == "engine")
    settings, _ = configured(plan, process, engine_world(plan, process, CATALOG, folder), folder)
    assert settings.kv_tokens > 0
