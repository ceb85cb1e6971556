"""Tuning belongs to the host: several owners, one record, and runs that end in the middle."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.shared_tuning import (
    GOVERNOR,
    PORTS,
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


def ask(host: StubbornHost, mode: str, owner: str, items: Items, **keys: object) -> dict[str, Any]:
    asked = {"mode": mode, "stack": owner, "items": items, "groups": ["tuning"], **keys}
    report = host.ask("state", **asked)
    rows = report.get("items")
    assert isinstance(rows, list), report
    return {row["id"]: row for row in rows}


A: Items = [sysctl("vm.swappiness", "0"), ports("50000"), governor()]
B: Items = [sysctl("vm.swappiness", "0"), sysctl("kernel.numa_balancing", "0"), ports("60000")]


def test_what_another_stack_still_wants_stays(untuned: StubbornHost) -> None:
    found = untuned.contents()
    ask(untuned, "apply", "a", A)
    ask(untuned, "apply", "b", B)
    rows = ask(untuned, "rollback", "a", [])
    assert (rows["vm.swappiness"]["state"], rows["governor"]["state"]) == ("ok", "changed")
    assert "stack b still wants it" in rows["vm.swappiness"]["why"]
    assert [value(untuned, path) for path in (SWAPPINESS, PORTS, GOVERNOR)] == [
        "0",
        "2703,60000",
        "powersave",
    ]
    assert value(untuned, SYSCTLS).splitlines()[1:] == [
        "vm.swappiness = 0",
        "kernel.numa_balancing = 0",
        "net.ipv4.ip_local_reserved_ports = 2703,60000",
    ]
    assert "governor" not in value(untuned, REQUEST)
    assert {row["state"] for row in ask(untuned, "check", "b", B).values()} == {"ok"}
    ask(untuned, "rollback", "b", [])
    left(untuned, found)


def test_what_two_stacks_want_alike_stays_until_the_second_gives_it_up(
    untuned: StubbornHost,
) -> None:
    """The second finds all as it wants it, and changes nothing but who has declared it."""
    found = untuned.contents()
    ask(untuned, "apply", "a", A)
    assert {row["state"] for row in ask(untuned, "apply", "b", A).values()} == {"ok"}
    ask(untuned, "rollback", "a", [])
    assert [value(untuned, path) for path in (SWAPPINESS, GOVERNOR)] == ["0", "performance"]
    ask(untuned, "rollback", "b", [])
    left(untuned, found)


def test_neither_stack_sees_drift_when_both_have_tuned(untuned: StubbornHost) -> None:
    for owner, items in (("a", A), ("b", B), ("a", A)):
        ask(untuned, "apply", owner, items)
    for owner, items in (("a", A), ("b", B)):
        assert {row["state"] for row in ask(untuned, "check", owner, items).values()} == {"ok"}


def test_a_stack_that_wants_something_else_is_told_and_changes_nothing(
    untuned: StubbornHost,
) -> None:
    ask(untuned, "apply", "a", A)
    row = ask(untuned, "apply", "b", [sysctl("vm.swappiness", "10")])["vm.swappiness"]
    assert row["state"] == "blocked"
    assert row["why"] == "stack a has declared 0 for this host"
    assert value(untuned, SWAPPINESS) == "0"
    assert "vm.swappiness = 0" in value(untuned, SYSCTLS)


def test_the_larger_of_two_least_values_is_taken(untuned: StubbornHost) -> None:
    small = [sysctl("vm.swappiness", "70", at_least=True)]
    ask(untuned, "apply", "a", small)
    ask(untuned, "apply", "b", [sysctl("vm.swappiness", "80", at_least=True)])
    assert value(untuned, SWAPPINESS) == "80"
    assert {row["state"] for row in ask(untuned, "check", "a", small).values()} == {"ok"}


def test_an_owner_that_has_declared_nothing_takes_nothing_back(untuned: StubbornHost) -> None:
    ask(untuned, "apply", "a", A)
    assert ask(untuned, "rollback", "@hosts", []) == {}
    assert value(untuned, SWAPPINESS) == "0"


class Killed(BaseException):
    """The agent ends here, as under SIGKILL: nothing after it runs."""


def killed_after(host: StubbornHost, num_writes: int, work: Callable[[], object]) -> bool:
    """Run until so many knobs are written; whether it was killed."""
    write, count = host.write_knob, itertools.count(1)

    def counting(absolute: str, value: str) -> None:
        if next(count) > num_writes:
            raise Killed
        write(absolute, value)

    host.write_knob = counting  # type: ignore[method-assign]
    try:
        work()
    except Killed:
        return True
    finally:
        host.write_knob = write  # type: ignore[method-assign]
    return False


@pytest.mark.parametrize("num_writes", range(3))
@pytest.mark.parametrize("way_out", ["again", "rollback"])
def test_an_apply_that_was_killed_is_finished_or_taken_back(
    untuned: StubbornHost, num_writes: int, way_out: str
) -> None:
    found = untuned.contents()
    assert killed_after(untuned, num_writes, lambda: ask(untuned, "apply", "a", A))
    if way_out == "again":
        ask(untuned, "apply", "a", A)
        assert {row["state"] for row in ask(untuned, "check", "a", A).values()} == {"ok"}
    ask(untuned, "rollback", "a", [])
    left(untuned, found)


@pytest.mark.parametrize("num_writes", range(3))
def test_a_rollback_that_was_killed_is_finished_by_the_next(
    untuned: StubbornHost, num_writes: int
) -> None:
    found = untuned.contents()
    ask(untuned, "apply", "a", A)
    assert killed_after(untuned, num_writes, lambda: ask(untuned, "rollback", "a", []))
    ask(untuned, "rollback", "a", [])
    left(untuned, found)


@pytest.mark.parametrize("num_writes", range(3))
def test_a_second_apply_that_was_killed_does_not_look_like_somebody_else(
    untuned: StubbornHost, num_writes: int
) -> None:
    """The host then still holds what our first run gave it, not what the record says last."""
    found = untuned.contents()
    ask(untuned, "apply", "a", A)
    other: Items = [sysctl("vm.swappiness", "5"), ports("50000,50001"), governor()]
    killed_after(untuned, num_writes, lambda: ask(untuned, "apply", "a", other))
    rows = ask(untuned, "rollback", "a", [])
    assert "blocked" not in {row["state"] for row in rows.values()}
    left(untuned, found)


@pytest.fixture
def engines(
    untuned: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> Callable[[str], None]:
    """Sets what `systemctl list-units` answers."""
    answer = tmp_path / "units"
    untuned.put("/run/systemd/system/x", "")
    stand_in("systemctl", f'case "$1" in list-units) cat {answer};; esac')

    def say(text: str) -> None:
        answer.write_text(text)

    say("")
    return say


DRAINED = sysctl("vm.swappiness", "0", needs="drain")
RUNNING = "moe-x-engine@0.service loaded active running engine\n"


def test_what_needs_a_drain_waits_until_it_is_allowed(
    untuned: StubbornHost, engines: Callable[[str], None]
) -> None:
    row = ask(untuned, "apply", "a", [DRAINED])["vm.swappiness"]
    assert (row["state"], row["needs"]) == ("blocked", "drain")
    assert "--allow drain" in row["why"]
    assert not Path(untuned.path(REQUEST)).exists()
    assert ask(untuned, "apply", "a", [DRAINED], allow=["drain"])["vm.swappiness"]["state"] == (
        "changed"
    )


def test_nothing_that_would_hurt_is_done_under_running_engines(
    untuned: StubbornHost, engines: Callable[[str], None]
) -> None:
    engines(RUNNING)
    row = ask(untuned, "apply", "a", [DRAINED], allow=["drain"])["vm.swappiness"]
    assert row["state"] == "blocked"
    assert "moe-x-engine@0.service runs here" in row["why"]
    assert not Path(untuned.path(SYSCTLS)).exists(), "it was left to the next boot"
    told = ask(untuned, "apply", "a", [DRAINED], allow=["drain", "running"])
    assert told["vm.swappiness"]["state"] == "changed"
    row = ask(untuned, "rollback", "a", [])["vm.swappiness"]
    assert (row["state"], value(untuned, SWAPPINESS)) == ("blocked", "0")
    engines("")
    assert ask(untuned, "rollback", "a", [])["vm.swappiness"]["state"] == "changed"


def test_live_items_are_changed_under_running_engines(
    untuned: StubbornHost, engines: Callable[[str], None]
) -> None:
    engines(RUNNING)
    assert ask(untuned, "apply", "a", A)["vm.swappiness"]["state"] == "changed"


def test_the_record_says_who_has_declared_what(untuned: StubbornHost) -> None:
    ask(untuned, "apply", "a", A)
    ask(untuned, "apply", "b", B)
    text = untuned.read_bytes("/var/lib/moe-infra/rollback/.host/record.json")
    assert set(json.loads(text)["declared"]) == {"a", "b"}
