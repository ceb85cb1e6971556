"""Sweeps and overrides of srt-slurm recipes: every combination that the file allows is judged, and none beyond."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.foreign import judge_recipe
from infra.errors import ProblemsFound
from infra.plan.foreign import slurm_sweep
from infra.plan.foreign.imported_recipe import ImportedRecipe
from tests.plan.foreign.importing import CATALOG, imported, judged

RECIPE = """\
name: sweep
model: {path: "hf:nvidia/Kimi-K2.5-NVFP4", container: "vllm/vllm-openai:v0.22.1", precision: fp4}
resources: {gpu_type: b200, gpus_per_node: 8, agg_nodes: 1, agg_workers: 1}
backend:
  type: vllm
  vllm_config:
    aggregated:
      tensor-parallel-size: "{tp}"
      pipeline-parallel-size: "{pp}"
      max-model-len: 32768
benchmark: {concurrencies: ["{conc}"]}
"""
SWEEP = """\
sweep:
  tp: [1, 8, 16]
  pp: [1, 2]
  conc: [4, 8]
"""
SGLANG = (
    RECIPE.replace("type: vllm", "type: sglang")
    .replace("vllm_config", "sglang_config")
    .replace("max-model-len", "context-length")
    .replace("vllm/vllm-openai:v0.22.1", "lmsysorg/sglang:v0.5.12")
)


def sizes(recipe: ImportedRecipe) -> list[tuple[str, str]]:
    found = []
    for each in (recipe, *recipe.others):
        argv = each.assembled.plan.processes[0].argv
        names = ("--tensor-parallel-size", "--pipeline-parallel-size")
        found.append((argv[argv.index(names[0]) + 1], argv[argv.index(names[1]) + 1]))
    return found


@pytest.mark.parametrize("text", [RECIPE, SGLANG])
def test_a_sweep_is_every_combination_that_fits_the_files_devices(
    text: str, tmp_path: Path
) -> None:
    recipe = imported(tmp_path, text + SWEEP, "r.yaml")
    assert sizes(recipe) == [("1", "1"), ("1", "2"), ("8", "1")]
    assert [each.choice for each in (recipe, *recipe.others)] == [
        {"tp": "1", "pp": "1"},
        {"tp": "1", "pp": "2"},
        {"tp": "8", "pp": "1"},
    ]
    (note,) = (row for row in recipe.not_understood if row.text == "sweep")
    assert note.line == 12
    assert note.why.startswith("6 combinations are left out")


def test_a_finding_of_some_combinations_warns_and_names_one(tmp_path: Path) -> None:
    judgement = judged(tmp_path, RECIPE + SWEEP, "r.yaml")
    assert [p for p in judgement.problems if p.blocks] == []
    (found,) = (p for p in judgement.problems if p.rule == "weights-memory")
    assert "So with tp=1, pp=1 and 1 more of the 3 combinations of the file." in found.what


def test_a_sweep_of_which_no_combination_runs_is_refused(tmp_path: Path) -> None:
    none = SWEEP.replace("[1, 8, 16]", "[1, 2]").replace("[1, 2]\n  conc", "[1]\n  conc")
    judgement = judged(tmp_path, RECIPE + none, "r.yaml")
    assert {p.rule for p in judgement.problems if p.blocks} == {"weights-memory"}


def test_what_the_operator_sets_is_one_combination(tmp_path: Path) -> None:
    recipe = imported(tmp_path, RECIPE + SWEEP, "r.yaml", settings={"tp": "8", "pp": "1"})
    assert sizes(recipe) == [("8", "1")]
    assert recipe.others == ()


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("sweep: {mode: zip, parameters: {tp: [4, 8], pp: [2, 1]}}\n", [("4", "2"), ("8", "1")]),
        ("sweep: {mode: grid, parameters: {tp: [4, 8], pp: [1]}}\n", [("4", "1"), ("8", "1")]),
        ("sweep: {tp: 8, pp: [1]}\n", [("8", "1")]),
    ],
)
def test_a_sweep_may_be_zipped_or_hold_one_value(
    sweep: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert sizes(imported(tmp_path, RECIPE + sweep, "r.yaml")) == expected


def test_ranks_of_vllm_take_all_devices_of_their_worker(tmp_path: Path) -> None:
    text = RECIPE.replace("pipeline-parallel-size", "data-parallel-size")
    recipe = imported(tmp_path, text + "sweep: {tp: [1, 2, 8], pp: [1, 4, 8]}\n", "r.yaml")
    chosen = [each.choice for each in (recipe, *recipe.others)]
    assert chosen == [{"tp": "1", "pp": "8"}, {"tp": "2", "pp": "4"}, {"tp": "8", "pp": "1"}]


def test_a_placeholder_that_nothing_fills_is_open(tmp_path: Path) -> None:
    recipe = imported(tmp_path, RECIPE + "sweep: {conc: [4]}\n", "r.yaml")
    (seat,) = recipe.assembled.seats.values()
    assert seat.is_layout_open
    judgement = judge_recipe(recipe, CATALOG)
    assert [p for p in judgement.problems if p.blocks] == []
    assert any("sizes or ranks depend" in row.because for row in judgement.not_judged)


def test_more_combinations_than_are_judged_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_sweep, "MAX_JUDGED", 2)
    recipe = imported(tmp_path, RECIPE + SWEEP, "r.yaml")
    assert len(sizes(recipe)) == 2
    assert any("more combinations are not judged" in row.why for row in recipe.not_understood)


def test_a_sweep_without_end_is_refused(tmp_path: Path) -> None:
    names = "".join(f"  v{i}: [1, 2, 3, 4, 5, 6, 7, 8]\n" for i in range(5))
    with pytest.raises(ProblemsFound, match="more than 4096 combinations"):
        imported(tmp_path, RECIPE + "sweep:\n" + names, "r.yaml")


OVERRIDES = (
    "base:\n"
    + "".join(f"  {row}\n" for row in RECIPE.replace("{tp}", "1").replace("{pp}", "1").split("\n"))
    + """
override_wide:
  backend: {vllm_config: {aggregated: {tensor-parallel-size: 8, max-model-len: null}}}
zip_override_two:
  resources: {agg_nodes: [2, 1], agg_workers: [2]}
  backend:
    vllm_config:
      aggregated:
        tensor-parallel-size: [8, 4]
"""
)


def test_overrides_are_laid_over_their_base_which_is_none_of_them(tmp_path: Path) -> None:
    recipe = imported(tmp_path, OVERRIDES, "r.yaml")
    assert [each.choice["variant"] for each in (recipe, *recipe.others)] == [
        "override_wide",
        "zip_override_two[0]",
        "zip_override_two[1]",
    ]
    assert [size for size, _ in sizes(recipe)] == ["8", "8", "4"]
    assert [len(e.assembled.plan.processes) for e in (recipe, *recipe.others)] == [1, 2, 2]
    assert "--max-model-len" not in recipe.assembled.plan.processes[0].argv
    (seat,) = recipe.assembled.seats.values()
    assert {word.line for word in seat.words if word.text == "--tensor-parallel-size"} == {16}


def test_a_variant_is_chosen_by_name(tmp_path: Path) -> None:
    recipe = imported(tmp_path, OVERRIDES, "r.yaml", settings={"variant": "zip_override_two[1]"})
    assert recipe.others == ()
    assert [size for size, _ in sizes(recipe)] == ["4"]
