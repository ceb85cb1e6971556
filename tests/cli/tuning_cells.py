"""What is shown of every tuning item on which flavour of host, as tests/cases/tuning_on_hosts.yaml says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from infra.catalog.load import Catalog
from infra.render.wanted_tuning import Tuning, WantedTuning, profile_tuning
from infra.spec.plain_yaml import read_yaml

PATH = Path(__file__).parents[1] / "cases" / "tuning_on_hosts.yaml"
# What follows from a plan; a profile alone leaves it open.
OF_A_PLAN = {"imex.nodes": "192.0.2.1,192.0.2.9", "jemalloc": "usable"}

Column = Literal["exists", "refuses", "sticks"]
COLUMNS: tuple[Column, ...] = ("exists", "refuses", "sticks")
Ways = Mapping[str, tuple[str, ...]]
"""By flavour, how it is shown there."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One item: each cell is a table, or the reason why there is nothing to show.

    Args:
        bare: how it may end on a host that has nothing.
    """

    exists: Ways | str
    refuses: Ways | str
    sticks: Ways | str
    bare: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One thing that a flavour must show: an item exists, refuses or sticks there, in one way."""

    item: str
    column: Column
    flavour: str
    way: str

    def __str__(self) -> str:
        return f"{self.item}-{self.column}-{self.flavour}-{self.way}"


def read_rows() -> dict[str, Row]:
    """The rows by item.

    Raises:
        ValueError: an item has two.
    """
    found: dict[str, Row] = {}
    for group in read_yaml(PATH):
        row = Row(
            exists=_ways(group["exists"]),
            refuses=_ways(group["refuses"]),
            sticks=_ways(group["sticks"]),
            bare=_words(group["bare"]),
        )
        for item in group["items"]:
            if item in found:
                message = f"{PATH}: {item} stands there twice"
                raise ValueError(message)
            found[item] = row
    return found


def all_shown(rows: Mapping[str, Row]) -> list[Shown]:
    """Everything that the tables promise."""
    return [
        Shown(item=item, column=column, flavour=flavour, way=way)
        for item, row in rows.items()
        for column in COLUMNS
        if not isinstance(table := getattr(row, column), str)
        for flavour, ways in table.items()
        for way in ways
    ]


@cache
def wanted_by_profile() -> Mapping[str, Mapping[str, WantedTuning]]:
    """The items of every profile by id, those switched on that a stack must name, completed as by a plan."""
    catalog = Catalog()
    result = {}
    for name in catalog.ids("tuning"):
        profile = catalog.tuning(name)
        optional = tuple(i.id for i in profile.items if not i.enabled or i.opt_in is not None)
        items = profile_tuning(Tuning(profile=profile, enable=optional))
        result[name] = {i.id: replace(i, want=OF_A_PLAN.get(i.id, i.want)) for i in items}
    return result


def is_left_alone(item: WantedTuning) -> bool:
    """Whether nothing is wanted of it; of a file of limits its text is."""
    return item.want is None and item.kind != "login-limits"


def _ways(cell: Any) -> Ways | str:
    if isinstance(cell, str):
        return cell
    return {flavour: _words(ways) for flavour, ways in cell.items()}


def _words(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
