"""The table of what is shown of every tuning item on simulated hosts has no hole."""

from __future__ import annotations

import pytest

from infra.render.wanted_tuning import WantedTuning
from tests.cli.tuning_cells import (
    PATH,
    Shown,
    all_shown,
    is_left_alone,
    read_rows,
    wanted_by_profile,
)
from tests.cli.tuning_faults import ONLY_LOOKED_AT, ways_of
from tests.cli.tuning_flavours import flavours

STATES = {"ok", "changed", "not_applicable", "blocked"}
ROWS = read_rows()
FLAVOURS = {one.name: one for one in flavours()}
BY_PROFILE = wanted_by_profile()
EVERY_ID = sorted({item for items in BY_PROFILE.values() for item in items})


def variants(item: str) -> list[WantedTuning]:
    """An item of all profiles that have it, each wish and target once."""
    found = [items[item] for items in BY_PROFILE.values() if item in items]
    return list({(one.kind, one.target, one.want): one for one in found}.values())


@pytest.mark.parametrize("item", EVERY_ID)
def test_every_item_of_the_catalogue_has_its_cells(item: str) -> None:
    assert item in ROWS, f"say in {PATH} where {item} exists, refuses and sticks, or why not"
    row = ROWS[item]
    assert not isinstance(row.exists, str), "an item that exists nowhere is none"
    shown = [BY_PROFILE[FLAVOURS[name].profile][item] for name in row.exists]
    for one in variants(item):
        same = [each for each in shown if (each.target, each.want) == (one.target, one.want)]
        assert same, f"{one.want!r} of {one.target} is shown on no flavour"
    assert row.bare
    assert set(row.bare) <= STATES


@pytest.mark.parametrize("item", sorted(set(EVERY_ID) & set(ROWS)))
def test_only_what_is_never_written_can_neither_refuse_nor_stick(item: str) -> None:
    """A reason is a sentence; nothing that is written gets by without refusing."""
    row, wanted = ROWS[item], [one for one in variants(item) if not is_left_alone(one)]
    for cell in (row.refuses, row.sticks):
        assert not isinstance(cell, str) or (len(cell.split()) > 3 and cell.endswith("."))
    assert isinstance(row.refuses, str) == (not wanted)
    if all(one.kind in ONLY_LOOKED_AT for one in wanted):
        assert isinstance(row.sticks, str)


def test_no_cell_is_of_an_item_that_is_gone() -> None:
    assert sorted(ROWS) == EVERY_ID


@pytest.mark.parametrize("shown", all_shown(ROWS), ids=str)
def test_a_cell_names_a_flavour_that_has_the_item_and_a_way_that_there_is(shown: Shown) -> None:
    flavour = FLAVOURS[shown.flavour]
    item = BY_PROFILE[flavour.profile][shown.item]
    assert not flavour.only or item.kind in flavour.only
    if shown.column == "exists":
        expected = "read" if is_left_alone(item) else "changed"
        assert shown.way == ("held" if item.kind in ONLY_LOOKED_AT else expected)
    else:
        assert not is_left_alone(item)
        assert shown.way in ways_of(item, shown.column)
