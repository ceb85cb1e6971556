"""What a check tells of how an item ended last: whether the host has lost it, refuses it, or never had it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.shared_tuning import BALANCING, SWAPPINESS, Items, left, sysctl
from tests.agent.stubborn_host import StubbornHost

RECORD = "/var/lib/moe-infra/rollback/.host/record.json"
DRAINED: Items = [sysctl("kernel.numa_balancing", "0", needs="drain")]


def ask(
    host: StubbornHost, mode: str, items: Items, owner: str = "a", **keys: object
) -> dict[str, dict[str, Any]]:
    report = host.ask("state", mode=mode, stack=owner, items=items, groups=["tuning"], **keys)
    rows = report.get("items")
    assert isinstance(rows, list), report
    return {row["id"]: row for row in rows}


def last(host: StubbornHost, items: Items, owner: str = "a") -> object:
    """The state in which the only item has ended last, if the same was wanted; None where it is not known."""
    row = ask(host, "check", items, owner)[str(items[0]["id"])]
    assert row["state"] in {"changed", "blocked"}
    known = row.get("last")
    return None if known is None or known["wanted"] != row["wanted"] else known["state"]


def test_what_a_host_had_by_itself_or_by_us_is_known_when_it_is_lost(untuned: StubbornHost) -> None:
    untuned.put(BALANCING, "0\n")
    ask(untuned, "apply", DRAINED)
    untuned.put(BALANCING, "1\n")
    assert last(untuned, DRAINED) == "ok"
    ask(untuned, "apply", DRAINED)
    assert last(untuned, DRAINED) == "ok", "an apply that only waits makes nothing of it"
    ask(untuned, "apply", DRAINED, allow=["drain"])
    untuned.put(BALANCING, "1\n")
    assert last(untuned, DRAINED) == "ok"


def test_what_waits_since_the_beginning_was_never_there(untuned: StubbornHost) -> None:
    assert last(untuned, DRAINED) is None
    ask(untuned, "apply", DRAINED)
    assert last(untuned, DRAINED) == "blocked"
    ask(untuned, "apply", DRAINED, allow=["drain"])
    untuned.put(BALANCING, "1\n")
    assert last(untuned, DRAINED) == "ok"


def test_another_wish_was_never_fulfilled(untuned: StubbornHost) -> None:
    ask(untuned, "apply", [sysctl("vm.swappiness", "0")])
    assert last(untuned, [sysctl("vm.swappiness", "10")]) is None


@pytest.mark.parametrize("fault", ["EPERM", "sticky"])
def test_what_a_host_refuses_is_kept_with_the_words(untuned: StubbornHost, fault: str) -> None:
    items: Items = [sysctl("vm.swappiness", "0")]
    untuned.faults[SWAPPINESS] = fault
    why = ask(untuned, "apply", items)["vm.swappiness"]["why"]
    row = ask(untuned, "check", items)["vm.swappiness"]
    assert row["state"] == "changed"
    assert row["last"] == {"state": "blocked", "wanted": "0", "after": "60", "why": why}


def test_another_owner_s_other_wish_changes_nothing_of_it(untuned: StubbornHost) -> None:
    ask(untuned, "apply", [sysctl("vm.swappiness", "0")], "a")
    other: Items = [sysctl("vm.swappiness", "10")]
    assert ask(untuned, "apply", other, "b")["vm.swappiness"]["state"] == "blocked"
    untuned.put(SWAPPINESS, "60\n")
    assert last(untuned, [sysctl("vm.swappiness", "0")], "a") == "ok"
    assert last(untuned, other, "b") is None


def test_a_second_apply_writes_no_record_and_a_rollback_leaves_none(untuned: StubbornHost) -> None:
    found = untuned.contents()
    ask(untuned, "apply", DRAINED, allow=["drain"])
    record = Path(untuned.path(RECORD))
    noted, written = record.read_bytes(), record.stat().st_mtime_ns
    ask(untuned, "apply", DRAINED)
    ask(untuned, "check", DRAINED)
    assert (record.read_bytes(), record.stat().st_mtime_ns) == (noted, written)
    ask(untuned, "rollback", [])
    left(untuned, found)


def test_what_was_taken_back_is_not_lost_while_another_owner_is_there(
    untuned: StubbornHost,
) -> None:
    ask(untuned, "apply", [sysctl("vm.swappiness", "0")], "b")
    ask(untuned, "apply", DRAINED, "a", allow=["drain"])
    ask(untuned, "rollback", [], "a")
    assert untuned.read_bytes(BALANCING) == b"1\n"
    assert last(untuned, DRAINED, "a") is None
    ask(untuned, "apply", DRAINED, "a")
    assert last(untuned, DRAINED, "a") == "blocked"
    untuned.put(SWAPPINESS, "60\n")
    assert last(untuned, [sysctl("vm.swappiness", "0")], "b") == "ok", "of what is wanted it stays"


def test_what_was_taken_back_is_not_lost_where_something_else_stays(untuned: StubbornHost) -> None:
    ask(untuned, "apply", [*DRAINED, sysctl("vm.swappiness", "0")], allow=["drain"])
    untuned.put(SWAPPINESS, "30\n")
    rows = ask(untuned, "rollback", [])
    assert rows["kernel.numa_balancing"]["state"] == "changed"
    assert rows["vm.swappiness"]["state"] == "blocked", "somebody else has changed it"
    ask(untuned, "apply", DRAINED)
    assert last(untuned, DRAINED) == "blocked"


def test_a_record_of_an_older_agent_tells_nothing(untuned: StubbornHost) -> None:
    ask(untuned, "apply", DRAINED, allow=["drain"])
    record = Path(untuned.path(RECORD))
    document = json.loads(record.read_bytes())
    del document["outcomes"]
    record.write_text(json.dumps(document))
    untuned.put(BALANCING, "1\n")
    assert last(untuned, DRAINED) is None
