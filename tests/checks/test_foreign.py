"""Imported recipes judged: findings at the lines of the file, and silence where the file leaves a question open."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.needs import COMPILERS_OWN, NEEDS
from infra.checks.rules import RULES
from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import CATALOG, judged

KIMI = "docker run --net=host --ipc=host vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 \\\n"
ON_H200 = Told(accelerator="h200")


def places(folder: Path, text: str, told: Told = ON_H200) -> list[tuple[str, int | None, str]]:
    return [
        (problem.rule, problem.line, problem.field)
        for problem in judged(folder, text, told=told).problems
        if problem.severity == "error"
    ]


@pytest.mark.parametrize(
    ("flags", "rule", "line", "field"),
    [
        ("  --tensor-parallel-size 3", "heads-divisible", 2, "--tensor-parallel-size"),
        ("  --tensor-parallel-size 8 \\\n  --sead 1", "unknown-flag", 3, "--sead"),
        ("  -tp 8 \\\n  --reasoning-parser kimi_k3", "parser-name", 3, "--reasoning-parser"),
        ("  -tp 8 \\\n  --max-model-len 400000", "context-length", 3, "--max-model-len"),
        ("  -tp 16", "device-shared", 2, "--tensor-parallel-size"),
        (
            "  -tp 8 \\\n  --compilation-config.nonsense 1",
            "json-flag-value",
            3,
            "--compilation-config",
        ),
        ("  -tp 1", "weights-memory", 1, "unified"),
    ],
)
def test_a_finding_is_at_the_line_of_its_flag(
    tmp_path: Path, flags: str, rule: str, line: int, field: str
) -> None:
    assert (rule, line, field) in places(tmp_path, KIMI + flags)


def test_a_finding_about_a_variable_is_at_its_line(tmp_path: Path) -> None:
    text = "docker run --ipc=host -e A=1 \\\n -e VLLM_USE_V7=1 vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 -tp 8"
    problems = judged(tmp_path, text, told=ON_H200).problems
    assert [(p.rule, p.line, p.field) for p in problems] == [("unread-variable", 2, "VLLM_USE_V7")]


def test_a_recipe_that_runs_has_no_finding(tmp_path: Path) -> None:
    text = KIMI + "  --tensor-parallel-size 8 --mm-encoder-tp-mode data"
    judgement = judged(tmp_path, text, told=ON_H200)
    assert not judgement.problems
    assert [row.because for row in judgement.not_judged] == [
        "the file does not say where every host is"
    ]


@pytest.mark.parametrize(
    ("text", "told", "rule"),
    [
        ("vllm serve moonshotai/Kimi-K2.5 --no-such-flag", Told(), "unknown-flag"),
        (KIMI + "-tp 1", Told(), "weights-memory"),
        (KIMI.replace("moonshotai/Kimi-K2.5", "a/b") + "-tp 3", ON_H200, "heads-divisible"),
        (KIMI + "-tp $TP", ON_H200, "weights-memory"),
        (
            KIMI + "-tp 8 -dp 2 --data-parallel-rank 1 --data-parallel-address $A",
            ON_H200,
            "ranks-incomplete",
        ),
        (KIMI + "-tp 8 --reasoning-parser $P", ON_H200, "parser-name"),
        (KIMI + '-tp 8 --kv-transfer-config "$KV"', ON_H200, "kv-role"),
    ],
)
def test_what_the_file_leaves_open_is_not_judged(
    tmp_path: Path, text: str, told: Told, rule: str
) -> None:
    assert rule not in {name for name, _, _ in places(tmp_path, text, told)}


def test_ranks_that_are_launched_twice_are_found_in_a_part_as_well(tmp_path: Path) -> None:
    ranks = (
        "vllm serve moonshotai/Kimi-K2.5 -dp 2 --data-parallel-rank 0 --data-parallel-address 10.0.0.1 &\n"
        * 2
    )
    found = judged(tmp_path, ranks, told=Told(engine="vllm:0.22.1", accelerator="h200"))
    assert "port-twice" in {problem.rule for problem in found.problems}


def test_one_place_has_one_finding_of_a_rule(tmp_path: Path) -> None:
    text = (
        "for i in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$i vllm serve moonshotai/Kimi-K2.5 --port $((8000+i)) \\\n"
        " --sead 1 & done"
    )
    found = judged(tmp_path, text, told=Told(engine="vllm:0.22.1")).problems
    assert [(p.rule, p.line) for p in found if p.rule == "unknown-flag"] == [("unknown-flag", 2)]


def test_what_was_not_judged_is_said(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "vllm serve a/b")
    assert {row.because for row in judgement.not_judged} >= {
        "nothing names the engine's release",
        "the accelerator is not known",
        "the model is not in the catalogue",
    }
    assert all(row.rules for row in judgement.not_judged)


BETWEEN = (
    "docker run --net=host --ipc=host vllm/vllm-openai:v0.22.0 moonshotai/Kimi-K2.5 -tp 8 \\\n"
)


def test_between_two_releases_what_both_refuse_is_refused(tmp_path: Path) -> None:
    (problem,) = judged(tmp_path, BETWEEN + " --sead 1", told=ON_H200).problems
    assert (problem.rule, problem.severity, problem.line) == ("unknown-flag", "error", 2)
    assert "So on 0.21.0 and on 0.22.1; 0.22.0 lies between." in problem.what


@pytest.mark.parametrize(
    ("flag", "known", "lacking"),
    [
        ("max-num-partial-prefills 1", "0.26.0", "0.27.1"),
        ("enable-fault-tolerance", "0.27.1", "0.26.0"),
    ],
)
def test_between_two_releases_what_one_takes_is_taken(
    tmp_path: Path, flag: str, known: str, lacking: str
) -> None:
    name = flag.partition(" ")[0]
    assert name in CATALOG.flags(f"vllm-{known}").by_name
    assert name not in CATALOG.flags(f"vllm-{lacking}").by_name
    text = BETWEEN.replace("0.22.0", "0.27.0") + f" --{flag}"
    assert not judged(tmp_path, text, told=ON_H200).problems


def test_without_a_release_what_all_refuse_is_a_warning(tmp_path: Path) -> None:
    text = (
        "vllm serve moonshotai/Kimi-K2.5 -tp 8 \\\n --max-num-seqs 512 --max-num-batched-tokens 64"
    )
    (problem,) = judged(tmp_path, text, told=ON_H200).problems
    assert (problem.rule, problem.severity, problem.line) == ("batched-tokens", "warning", 2)
    assert problem.what.endswith("nothing names this one.")


def test_without_a_release_names_are_not_judged(tmp_path: Path) -> None:
    text = "vllm serve moonshotai/Kimi-K2.5 -tp 8 --reasoning-parser of_a_branch --flag-of-a-branch"
    judgement = judged(tmp_path, text, told=ON_H200)
    assert not judgement.problems
    (row,) = (row for row in judgement.not_judged if row.because.startswith("nothing names"))
    assert {"unknown-flag", "parser-name"} <= set(row.rules)


def test_needs_name_rules_that_exist() -> None:
    named = {rule for rules in NEEDS.values() for rule in rules} | COMPILERS_OWN
    assert named <= RULES.keys()
