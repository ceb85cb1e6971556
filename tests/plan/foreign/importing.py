"""Foreign files for tests: written to a folder, imported, judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.foreign import Judgement, judge_recipe
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import ImportedRecipe, import_recipe

CATALOG = Catalog()
NOTHING_TOLD = Told()


def imported(
    folder: Path,
    text: str,
    name: str = "serve.sh",
    told: Told = NOTHING_TOLD,
    settings: Mapping[str, str] | None = None,
) -> ImportedRecipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return import_recipe(path, told, settings or {}, CATALOG)


def judged(folder: Path, text: str, name: str = "serve.sh", told: Told = NOTHING_TOLD) -> Judgement:
    return judge_recipe(imported(folder, text, name, told), CATALOG)


def argvs(recipe: ImportedRecipe) -> list[tuple[str, ...]]:
    return [process.argv for process in recipe.assembled.plan.processes]
