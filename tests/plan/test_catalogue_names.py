"""Names that everybody writes in a stack: of hubs, of vendors, in any letters; what is none leads to what fits."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import ProblemsFound
from infra.plan.compile import compile_stack
from infra.spec.load import load_stack

CATALOG = Catalog()


def refused(stack: str, *sets: str) -> list[str]:
    """What is said of a stack that does not load or compile, or that a rule refuses."""
    try:
        loaded = load_stack(stack, sets)
        plan = compile_stack(loaded, catalog=CATALOG).plan
    except ProblemsFound as found:
        return [str(problem) for problem in found.problems]
    return [str(problem) for problem in judge_stack(plan, loaded, CATALOG) if problem.blocks]


@pytest.mark.parametrize(
    ("stack", "word"),
    [
        *(
            ("h200-tp8", f"checkpoint={name}")
            for name in ("moonshotai/Kimi-K2.5", "KIMI-K2.5-INT4")
        ),
        ("gb200-nvfp4-tp4", "checkpoint=nvidia/kimi-k2.5-nvfp4"),
        ("gb200-nvfp4-tp4", "checkpoint=Kimi-K2.5-NVFP4"),
        ("k2-thinking-h200-tp8", "checkpoint=Kimi-K2-Thinking"),
        ("a3-dp4tp4", "checkpoint=Eco-Tech/Kimi-K2.5-W4A8"),
        ("h200-tp8-eagle3", "draft.checkpoint=lightseekorg/kimi-k2.5-eagle3-mla"),
        *(("h200-tp8", f"accelerator={name}") for name in ("H200", "NVIDIA H200", "nvidia h200")),
        ("mi300x-tp8", "accelerator=AMD Instinct MI300X"),
    ],
)
def test_another_name_of_the_same_makes_the_same_plan(stack: str, word: str) -> None:
    plans = [compile_stack(load_stack(stack, sets), catalog=CATALOG).plan for sets in ((), (word,))]
    assert plans[0].hosts == plans[1].hosts
    assert plans[0].checkpoint == plans[1].checkpoint
    commands = [[(p.id, p.argv, p.env, p.devices) for p in plan.processes] for plan in plans]
    assert commands[0] == commands[1]


@pytest.mark.parametrize(
    ("stack", "right"),
    [
        ("h200-tp8", "Use kimi-k2.5-int4 on h200."),
        ("a3-dp4tp4", "Use kimi-k2.5-w4a8 on ascend-a3."),
        ("gb200-tp4", "Use kimi-k2.5-int4 or kimi-k2.5-nvfp4 on gb200."),
    ],
)
@pytest.mark.parametrize("model", ["Kimi-K2.5", "kimi-k2.5"])
def test_a_model_of_several_builds_leads_to_those_that_fit(
    stack: str, right: str, model: str
) -> None:
    (said,) = refused(stack, f"checkpoint={model}")
    assert right in said


def test_a_build_that_does_not_fit_leads_to_one_that_does() -> None:
    (said,) = refused("a3-dp4tp4", "checkpoint=moonshotai/Kimi-K2.5")
    assert "Use kimi-k2.5-w4a8 on ascend-a3." in said


def test_an_unknown_name_leads_to_what_the_accelerator_runs() -> None:
    (said,) = refused("h200-tp8", "checkpoint=deepseek-ai/DeepSeek-V3")
    assert "kimi-k2.5-int4" in said
    assert "w4a8" not in said
    assert "nvfp4" not in said


@pytest.mark.parametrize("field", ["checkpoint", "accelerator", "served_name"])
@pytest.mark.parametrize("name", ["../accelerators/h200", "-x", "a$b"])
def test_what_is_no_name_is_said_in_words(field: str, name: str) -> None:
    (said,) = refused("h200-tp8", f"{field}={name}")
    assert f"is no name for {field}" in said
    assert "^[" not in said


@pytest.mark.parametrize("word", ["bare-metal", "Baremetal", "on-prem", "ssh"])
@pytest.mark.parametrize("field", ["platform", "accelerator"])
def test_own_machines_are_existing_hosts_by_any_name(field: str, word: str) -> None:
    (said,) = refused("mi300x-tp8", f"{field}={word}")
    assert "existing-hosts" in said.rpartition(". Write ")[2]
    assert "aws" not in said.rpartition(". Write ")[2]


@pytest.mark.parametrize(
    ("stack", "default"),
    [
        ("h200-tp8", "moonshotai/Kimi-K2.5"),
        ("a3-dp4tp4", "kimi_k25"),
        ("h200-sglang-tp8", "moonshotai/Kimi-K2.5"),
    ],
)
def test_a_stack_chooses_the_name_that_clients_ask_for(stack: str, default: str) -> None:
    for sets, name in (((), default), (("served_name=kimi",), "kimi")):
        plan = compile_stack(load_stack(stack, sets), catalog=CATALOG).plan
        for process in plan.processes:
            place = process.argv.index("--served-model-name")
            assert process.argv[place + 1] == name


def test_the_flag_leads_to_the_field() -> None:
    said = refused("h200-tp8", "roles.unified.flags.served-model-name=kimi")
    assert any("Use the field served_name." in each for each in said)
