"""Published holes are told of the plans that meet their condition, and of no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.advisories import advisories
from infra.checks.advisories import no_known_holes
from infra.checks.judge import judge_stack
from infra.checks.view import Surroundings, view_plan
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from tests.checks.rule_cases import CATALOG
from tests.plan.foreign.importing import judged as judged_recipe

KEY = "secrets.api_key.env=K"
LOGITS = ("--enable-custom-logit-processor",)
P2P = ("--kv-transfer-config", '{"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}')


def added(plan: Plan, words: tuple[str, ...] = (), **env: str) -> Plan:
    """The plan with more words and variables on every engine process."""
    return replace(
        plan,
        processes=tuple(
            replace(each, argv=(*each.argv, *words), env={**each.env, **env})
            if each.kind == "engine"
            else each
            for each in plan.processes
        ),
    )


def told(plan: Plan, named_release: str | None = None) -> str:
    around = Surroundings(named_release=named_release)
    return " ".join(
        f"{found.what} {found.fix}" for found in no_known_holes(view_plan(plan, CATALOG, around))
    )


def plan_of(stack: str, *sets: str) -> Plan:
    return compile_file(stack, catalog=CATALOG, sets=sets).plan


@pytest.mark.parametrize(
    ("name", "met", "not_met"),
    [
        ("CVE-2026-48746", plan_of("mi325x-tp4", KEY), plan_of("mi325x-tp4")),
        ("CVE-2026-48746", plan_of("mi325x-tp4", KEY), plan_of("h200-tp8", KEY)),
        ("CVE-2024-11041", plan_of("h200-2n-tp16"), plan_of("h200-tp8")),
        ("CVE-2024-11041", plan_of("ascend-2n-tp16"), plan_of("gb200-2p1d")),
        ("CVE-2026-116176", added(plan_of("h200-tp8"), P2P), plan_of("gb200-2p1d")),
        ("CVE-2026-41523", added(plan_of("mi325x-tp4"), PYTHONOPTIMIZE="1"), plan_of("mi325x-tp4")),
        ("CVE-2026-7304", added(plan_of("h200-sglang-tp8"), LOGITS), plan_of("h200-sglang-tp8")),
        ("CVE-2026-3060", added(plan_of("h200-sglang-tp8"), ("--language-only",)),
         plan_of("h200-sglang-tp8")),
        ("CVE-2026-86793", plan_of("sglang-replicas"), plan_of("sglang-replicas", "engine.version=0.5.23")),
        ("CVE-2026-111392", plan_of("sglang-replicas", "engine.version=0.5.16"), plan_of("sglang-replicas")),
    ],
)  # fmt: skip
def test_a_hole_is_told_where_its_condition_holds(name: str, met: Plan, not_met: Plan) -> None:
    assert f"{name}: " in told(met)
    assert name not in told(not_met)


@pytest.mark.parametrize("name", ["CVE-2026-3989", "CVE-2026-3059", "CVE-2026-7301"])
def test_what_no_plan_of_this_engine_starts_is_not_told(name: str) -> None:
    plan = plan_of("h200-sglang-tp8")
    assert name not in told(plan)
    server = tuple(
        replace(
            each, argv=("python3", "-m", "sglang.multimodal_gen.launch", "replay_request_dump.py")
        )
        for each in plan.processes
    )
    assert name in told(replace(plan, processes=server))


def test_a_checkpoint_that_is_staged_is_no_repository() -> None:
    staged = plan_of("h200-tp8")
    path = next(word for word in staged.processes[0].argv if word.startswith("/models/"))
    words = tuple("moonshotai/Kimi-K2.5" if w == path else w for w in staged.processes[0].argv)
    named = replace(staged, processes=(replace(staged.processes[0], argv=words),))
    assert "--trust-remote-code" in words
    assert "CVE-2026-114053" not in told(staged)
    assert "CVE-2026-114053" in told(named)


def test_code_of_a_model_that_is_switched_off_runs_all_the_same() -> None:
    plan = plan_of("mi325x-tp4")
    words = tuple(word for word in plan.processes[0].argv if word != "--trust-remote-code")
    without = replace(plan, processes=(replace(plan.processes[0], argv=words),))
    assert "CVE-2026-27893" in told(without)
    assert "CVE-2026-27893" not in told(plan)


def test_the_release_that_mends_all_of_them_is_named() -> None:
    text = told(plan_of("h200-sglang-tp8"))
    assert "Take sglang 0.5.19 or later." in text
    assert "Take vllm 0.22.0 or later." in told(plan_of("mi325x-tp4", KEY))
    unmended = told(plan_of("h200-2n-tp16"))
    assert "Take" not in unmended
    assert "No fixed release is known for CVE-2024-11041." in unmended


def test_the_next_published_release_mends_what_an_advisory_ends_with() -> None:
    hole = next(each for each in advisories("sglang") if each.id == "CVE-2026-111392")
    assert hole.mended(["0.5.16", "0.5.23", "0.5.30"]) == "0.5.23"
    assert hole.mended(["0.5.16"]) is None


def test_a_release_that_was_never_read_is_judged_by_its_number() -> None:
    plan = plan_of("h200-2n-tp16")
    assert "CVE-2025-30202" in told(plan, "0.8.4")
    assert "CVE-2025-30202" not in told(plan, "0.8.5")
    assert "vllm 0.22.0.dev3+gabc has" in told(plan, "0.22.0.dev3+gabc")


@pytest.mark.parametrize(
    ("tag", "has_it"), [("v0.8.4", True), ("v0.14.0", True), ("v0.14.1", False), ("nightly", False)]
)
def test_an_imported_recipe_is_told_of_by_what_it_names(
    tag: str, has_it: bool, tmp_path: Path
) -> None:
    text = f"docker run --gpus all vllm/vllm-openai:{tag} moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
    found = [p for p in judged_recipe(tmp_path, text, "serve.sh").problems if p.rule == "advisory"]
    assert any("CVE-2026-24779" in p.what for p in found) is has_it
    assert {p.line for p in found} <= {1}
    assert bool(found) is (tag != "nightly")


def test_a_hole_may_be_waived_and_is_printed_all_the_same() -> None:
    word = "waive=[{rule: advisory, reason: closed network}]"
    compiled = compile_file("mi325x-tp4", catalog=CATALOG, sets=(KEY, word))
    problems = judge_stack(compiled.plan, compiled.stack, CATALOG)
    assert [(p.rule, p.waived, p.line) for p in problems if p.rule == "advisory"] == [
        ("advisory", "closed network", 5)
    ]
