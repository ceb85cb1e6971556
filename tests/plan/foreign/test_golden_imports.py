"""Examples written for this test in the style of published ones: exactly what `fab import` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.foreign import judge_recipe
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import import_recipe
from infra.render.import_report import import_listing
from infra.tasks.check import problem_line
from tests.plan.foreign.importing import CATALOG

CASES = Path(__file__).parents[2] / "cases" / "import"
TOLD = {
    "two-hosts-guide": Told(engine="vllm:0.22.1", accelerator="h200"),
    "ranks": Told(engine="vllm-ascend:0.22.1rc1"),
    "amd-container": Told(accelerator="mi355x"),
    "compose-pd": Told(accelerator="b200"),
}


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CASES.iterdir() if path.suffix != ".txt"),
    ids=lambda path: path.stem,
)
def test_an_example_is_read_and_judged_as_recorded(path: Path, *, update_golden: bool) -> None:
    recipe = import_recipe(path, TOLD.get(path.stem, Told()), {}, CATALOG)
    judgement = judge_recipe(recipe, CATALOG)
    found = import_listing(recipe, judgement)
    found += "\n".join(["", *map(problem_line, judgement.problems)]) + "\n"
    found = found.replace(str(path), path.name)
    recorded = path.with_suffix(".txt")
    if update_golden:
        recorded.write_text(found, encoding="utf-8")
    assert found == recorded.read_text(encoding="utf-8"), "--update-golden, and read the difference"
