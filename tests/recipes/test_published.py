"""Published deployments over several hosts: none is refused, and no warning appears that nobody has looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.checks.rules import RULES
from infra.errors import ProblemsFound
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import import_recipe
from infra.spec.load import PROJECT
from tests.recipes.calibration import Row, judge, page, uncovered
from tests.recipes.published_recipes import (
    PublishedRecipe,
    accepted_warnings,
    published_recipes,
    recipes_not_read,
)

PAGE = PROJECT / "docs" / "calibration.md"
# Of each repository's deployments the ordinary tests take every so many.
STEP = 8
# Its whole tree is kept, on one host and on several; the others are searched for deployments over several.
WITH_SINGLE_HOSTS = "NVIDIA/srt-slurm-recipes"


def judged(recipes: tuple[PublishedRecipe, ...], folder: Path) -> list[Row]:
    catalog = Catalog()
    return [judge(recipe, folder, catalog) for recipe in recipes]


def assert_calibrated(rows: list[Row]) -> None:
    wrong = {row.recipe.source: row.errors for row in rows if row.refused != row.recipe.refused}
    assert wrong == {}
    assert uncovered(rows)[0] == {}
    single = {row.recipe.repository for row in rows if row.num_hosts < 2}
    assert single <= {WITH_SINGLE_HOSTS}


def test_enough_deployments_of_enough_projects_are_kept() -> None:
    recipes = published_recipes()
    assert len(recipes) >= 150
    assert len({recipe.repository for recipe in recipes}) >= 5
    assert len({recipe.source for recipe in recipes}) == len(recipes)


def test_every_deployment_names_its_source_and_nothing_private() -> None:
    for recipe in published_recipes():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", recipe.repository), recipe.source
        assert re.fullmatch(r"[0-9a-f]{40}", recipe.commit), recipe.source
        addresses = set(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", recipe.text))
        private = {a for a in addresses if not a.startswith("192.0.2.")}
        assert private <= {"0.0.0.0", "127.0.0.1"}, recipe.source
        assert not re.search(r"^\s*#", recipe.text, re.MULTILINE), recipe.source


def test_some_deployments_of_every_project_are_taken_as_they_are(tmp_path: Path) -> None:
    recipes = published_recipes()
    first = {recipe.repository: recipe for recipe in reversed(recipes)}
    assert_calibrated(judged(tuple({*recipes[::STEP], *first.values()}), tmp_path))


@pytest.mark.slow  # more than two hundred deployments with more than a thousand processes
def test_every_deployment_is_taken_and_the_page_says_so(
    tmp_path: Path, *, update_golden: bool
) -> None:
    rows = judged(published_recipes(), tmp_path)
    if update_golden:
        PAGE.write_text(page(rows), encoding="utf-8")
    assert_calibrated(rows)
    assert uncovered(rows)[1] == []
    assert PAGE.read_text(encoding="utf-8") == page(rows), (
        "run pytest tests/recipes/test_published.py --update-golden"
    )


def test_what_is_refused_was_mended_by_its_author() -> None:
    refused = [recipe for recipe in published_recipes() if recipe.refused]
    assert refused
    assert [recipe.source for recipe in refused if not (recipe.mended and recipe.branch)] == []


def test_recipes_of_an_engine_that_is_not_read_are_told_from_those_that_start_none(
    tmp_path: Path,
) -> None:
    files = recipes_not_read()
    assert len(files) == 227
    for path, text in files.items():
        file = tmp_path / Path(path).name
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ProblemsFound) as raised:
            import_recipe(file, Told(), {}, Catalog())
        assert [problem.rule for problem in raised.value.problems] == ["engine-not-read"], path


def test_the_tree_of_srt_slurm_recipes_is_whole() -> None:
    kept = [r for r in published_recipes() if r.repository == WITH_SINGLE_HOSTS]
    assert len(kept) + len(recipes_not_read()) == 511


def test_reasons_are_of_rules_that_warn() -> None:
    """What refuses a deployment warns of a sweep of which other combinations run."""
    always = [each for each in accepted_warnings() if "combinations of the file" not in each.says]
    assert {RULES[each.rule].severity for each in always} == {"warning"}
