"""docs/tuning.md names every item of the catalogue, and calls it what it is."""

from __future__ import annotations

import re

import pytest

from infra.catalog.load import Catalog
from infra.catalog.schema import TuningItem
from infra.spec.load import PROJECT

ROW = re.compile(r"^\| [^|]*\| (`[^|]+`) \| ([^|]+) \|", re.MULTILINE)
TEXT = (PROJECT / "docs" / "tuning.md").read_text(encoding="utf-8")
WORDS = {name: how for names, how in ROW.findall(TEXT) for name in re.findall(r"`([^`]+)`", names)}


def items() -> dict[str, list[TuningItem]]:
    """Every item of every profile, by its id."""
    catalog = Catalog()
    found: dict[str, list[TuningItem]] = {}
    for name in catalog.ids("tuning"):
        for item in catalog.tuning(name).items:
            found.setdefault(item.id, []).append(item)
    return found


def word_of(item: TuningItem) -> str:
    if item.kind in (
        "login-limits",
        "imex-nodes",
    ):  # what is wanted follows from a file or the plan
        return "set"
    if not item.enabled or item.opt_in is not None:
        return "set" if item.want is not None and item.enabled else "opt-in"
    return "read" if item.want is None or item.kind == "unit-limits" else "set"


def test_the_page_and_the_catalogue_name_the_same_items() -> None:
    assert sorted(WORDS) == sorted(items())


@pytest.mark.parametrize("name", sorted(items()))
def test_an_item_is_called_what_it_is(name: str) -> None:
    for item in items()[name]:
        assert word_of(item) in WORDS[name], item
        if item.needs in ("drain", "reboot") and word_of(item) != "read":
            assert item.needs in WORDS[name], item
