"""The catalogue's instance types as the emulated cloud reads them.

Plain YAML: a plug-in that starts with every command cannot afford to load the catalogue's schema (0.3 s);
the catalogue's own tests hold the files to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.spec.plain_yaml import read_yaml

_FOLDER = Path(__file__).resolve().parents[2] / "catalog" / "instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """One instance type.

    Args:
        efa_cards: cards that carry an EFA device.
        efa_only_cards: cards that carry nothing else.
    """

    name: str
    architecture: str
    num_vcpus: int
    capacity_kinds: tuple[str, ...]
    num_cards: int
    interfaces_per_card: int
    efa_cards: frozenset[int]
    efa_only_cards: frozenset[int]


@cache
def machine_facts(name: str) -> MachineFacts | None:
    """The facts of an instance type, None when the catalogue has none of that name."""
    path = _FOLDER / f"{name}.yaml"
    if path.parent != _FOLDER or not path.is_file():
        return None
    data = read_yaml(path)
    cards = data["cards"]
    return MachineFacts(
        name=name,
        architecture=data["architecture"],
        num_vcpus=data["num_vcpus"],
        capacity_kinds=tuple(data["capacity_kinds"]),
        num_cards=cards["num_cards"],
        interfaces_per_card=cards["interfaces_per_card"],
        efa_cards=_indices(cards["efa"]),
        efa_only_cards=_indices(cards.get("efa_only")),
    )


def _indices(cards: dict[str, int] | None) -> frozenset[int]:
    if cards is None:
        return frozenset()
    return frozenset(range(cards["first"], cards["last"] + 1, cards.get("step", 1)))
