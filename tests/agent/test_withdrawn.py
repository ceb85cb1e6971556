"""A wish that its owner has no more: an apply takes back what was written for it, a check says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.agent.conversation import answer
from infra.agent.item import NotCarried
from infra.agent.state import operation
from tests.agent.shared_tuning import (
    BALANCING,
    GOVERNOR,
    REQUEST,
    SWAPPINESS,
    SYSCTLS,
    Items,
    governor,
    left,
    ports,
    sysctl,
    value,
)
from tests.agent.stubborn_host import StubbornHost

RECORD = "/var/lib/moe-infra/rollback/.host/record.json"
ALL: Items = [sysctl("vm.swappiness", "0"), sysctl("kernel.numa_balancing", "0"), governor()]
LESS: Items = [sysctl("vm.swappiness", "0")]
RUNNING = "moe-x-engine@0.service loaded active running engine\n"


def tune(
    host: StubbornHost, mode: str, items: Items, owner: str = "a", **keys: object
) -> dict[str, Any]:
    """The rows by id, of a request that names all of an owner's tuning."""
    report = host.ask(
        "state", mode=mode, stack=owner, items=items, groups=["tuning"], withdraws=True, **keys
    )
    rows = report.get("items")
    assert isinstance(rows, list), report
    assert len({row["id"] for row in rows}) == len(rows), "an item is told twice"
    return {row["id"]: row for row in rows}


def test_what_an_owner_wants_no_more_comes_back(untuned: StubbornHost) -> None:
    found = untuned.contents()
    tune(untuned, "apply", ALL)
    assert "governor" in value(untuned, REQUEST)
    tuned = untuned.contents()
    told = tune(untuned, "check", LESS)
    assert untuned.contents() == tuned, "a check has written"
    for name, now, then in (
        ("governor", "performance", "powersave"),
        ("kernel.numa_balancing", "0", "1"),
    ):
        row = told[name]
        assert (row["state"], row["before"], row["wanted"], row["after"]) == (
            "changed", now, then, now,
        )  # fmt: skip
        assert "nobody wants it any more" in row["why"]
    done = tune(untuned, "apply", LESS)
    assert (done["governor"]["state"], done["governor"]["after"]) == ("changed", "powersave")
    assert [value(untuned, path) for path in (SWAPPINESS, BALANCING, GOVERNOR)] == [
        "0", "1", "powersave",
    ]  # fmt: skip
    assert value(untuned, SYSCTLS).splitlines()[1:] == ["vm.swappiness = 0"]
    assert not Path(untuned.path(REQUEST)).exists(), "the next boot would bring it about again"
    assert {row["state"] for row in tune(untuned, "check", LESS).values()} == {"ok"}
    assert "governor" not in tune(untuned, "check", LESS)
    tune(untuned, "rollback", [])
    left(untuned, found)


def test_an_owner_that_wants_nothing_any_more_leaves_nothing(untuned: StubbornHost) -> None:
    found = untuned.contents()
    tune(untuned, "apply", ALL)
    tune(untuned, "apply", [])
    left(untuned, found)


def test_an_item_that_is_now_left_alone_comes_back_and_is_told_once(untuned: StubbornHost) -> None:
    tune(untuned, "apply", LESS)
    alone: Items = [{**LESS[0], "want": None, "why": "as the vendor set it"}]
    assert tune(untuned, "check", alone)["vm.swappiness"]["state"] == "changed"
    assert tune(untuned, "apply", alone)["vm.swappiness"]["after"] == "60"
    row = tune(untuned, "check", alone)["vm.swappiness"]
    assert (row["state"], row["wanted"]) == ("ok", None)


def test_what_another_owner_wants_stays(untuned: StubbornHost) -> None:
    tune(untuned, "apply", ALL)
    tune(untuned, "apply", [governor()], owner="b")
    done = tune(untuned, "apply", LESS)
    assert "governor" not in done
    assert (value(untuned, GOVERNOR), value(untuned, BALANCING)) == ("performance", "1")
    assert "governor" in value(untuned, REQUEST)
    tune(untuned, "apply", [], owner="b")
    assert value(untuned, GOVERNOR) == "powersave"
    assert value(untuned, SWAPPINESS) == "0"


def test_a_request_for_some_of_the_items_takes_nothing_back(untuned: StubbornHost) -> None:
    tune(untuned, "apply", ALL)
    rows = untuned.ask("state", mode="check", stack="a", items=LESS)["items"]
    assert isinstance(rows, list)
    assert {row["id"] for row in rows if row["kind"] != "file"} == {"vm.swappiness"}


def test_what_something_else_has_changed_is_left_with_a_word(untuned: StubbornHost) -> None:
    tune(untuned, "apply", ALL)
    untuned.put(BALANCING, "2\n")
    for mode in ("check", "apply", "apply"):
        row = tune(untuned, mode, LESS)["kernel.numa_balancing"]
        assert (row["state"], "something else has changed" in row["why"]) == ("blocked", True)
    assert value(untuned, BALANCING) == "2"
    untuned.put(BALANCING, "1\n")
    assert tune(untuned, "apply", LESS)["kernel.numa_balancing"]["state"] == "ok"
    assert "kernel.numa_balancing" not in tune(untuned, "check", LESS)


@pytest.mark.parametrize("needs", ["drain", "reboot"])
def test_it_waits_for_what_its_change_waits_for(
    untuned: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path, needs: str
) -> None:
    untuned.put("/run/systemd/system/x", "")
    (tmp_path / "units").write_text("")
    stand_in("systemctl", f'case "$1" in list-units) cat {tmp_path}/units;; esac')
    items: Items = [*LESS, sysctl("kernel.numa_balancing", "0", needs=needs)]
    tune(untuned, "apply", items, allow=[needs])
    for mode in ("check", "apply"):
        row = tune(untuned, mode, LESS)["kernel.numa_balancing"]
        assert (row["state"], row["needs"]) == ("blocked", needs)
        assert f"--allow {needs}" in row["why"]
    if needs == "drain":
        (tmp_path / "units").write_text(RUNNING)
        row = tune(untuned, "apply", LESS, allow=["drain"])["kernel.numa_balancing"]
        assert (row["state"], "moe-x-engine@0.service" in row["why"]) == ("blocked", True)
        (tmp_path / "units").write_text("")
    row = tune(untuned, "apply", LESS, allow=[needs])["kernel.numa_balancing"]
    assert (row["state"], value(untuned, BALANCING)) == ("changed", "1")


def test_a_knob_that_is_away_just_now_keeps_what_the_next_boot_needs(untuned: StubbornHost) -> None:
    items: Items = [{**governor(), "tolerate_absent": True}]
    tune(untuned, "apply", items)
    Path(untuned.path(GOVERNOR)).unlink()
    assert tune(untuned, "apply", items)["governor"]["state"] == "not_applicable"
    assert "governor" in value(untuned, REQUEST)


def test_what_it_takes_is_asked_for_before_anything_is_changed(
    untuned: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An apply carries no taking back: seldom is there anything to take."""
    tune(untuned, "apply", ALL)
    tuned = untuned.contents("/run")

    def lacks(_: object, further: list[str]) -> None:
        if further:
            raise NotCarried(list(further))

    monkeypatch.setattr(operation, "bring", lambda kinds, further=(): lacks(kinds, list(further)))
    report = answer(
        {
            "schema_version": 1, "operation": "state", "mode": "apply", "stack": "a",
            "items": [*LESS, ports("50000")], "withdraws": True,
        },
        untuned,
    )  # fmt: skip
    assert report["lacks"] == ["state.taking_back"]
    assert untuned.contents("/run") == tuned
