"""Every case of tests/cases/tuning: check promises, apply does it, again nothing, rollback brings back.

A case names the host's files, faults, the items, and for `check` and `apply` the expected rows, each
with the keys that matter; `why` is a part of the sentence. `left` is what apply leaves in files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.spec.plain_yaml import read_yaml
from tests.agent.stubborn_host import StubbornHost

CASES = Path(__file__).parents[1] / "cases" / "tuning"
LOCK = "/run/moe-infra"
SYSTEM_FOLDERS = {"/run", "/var", "/var/lib"}


@pytest.mark.parametrize(
    "path", sorted(CASES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_case_holds(path: Path, tmp_path: Path) -> None:
    case = read_yaml(path)
    host = StubbornHost(tmp_path, case.get("faults"))
    for name, text in case["host"].items():
        host.put(name, text)
    found = host.contents()
    items = [{"group": "tuning", "why": "the case wants it", **item} for item in case["items"]]

    compare(host.state("check", items), case["check"])
    assert host.contents() == found, "a check has written"
    assert host.writes == []

    compare(host.state("apply", items), case.get("apply", case["check"]))
    for name, text in case.get("left", {}).items():
        assert Path(host.path(name)).read_text() == text, name
    host.writes.clear()

    again = host.state("apply", items)
    assert not [row["id"] for row in again.values() if row["state"] == "changed"]
    if not case.get("faults"):
        assert host.writes == []

    host.faults.clear()
    host.state("rollback", items)
    left = host.contents(LOCK)
    assert left.keys() - found.keys() <= SYSTEM_FOLDERS  # those every host has before us
    assert {name: left[name] for name in found} == found


def compare(rows: dict[str, dict[str, Any]], expected: dict[str, dict[str, Any]]) -> None:
    for item, keys in expected.items():
        for key, value in keys.items():
            got = rows[item][key]
            if key == "why":
                assert value in got, f"{item}.{key}: {got}"
            else:
                assert got == value, f"{item}.{key}: {got!r}"


def test_every_folder_has_an_already_so_a_zero_and_a_garbage() -> None:
    for folder in CASES.iterdir():
        names = {path.stem for path in folder.glob("*.yaml")}
        assert {"already-so", "zero", "garbage"} <= names, folder.name
