"""Hosts that are met while a task loads: never before something is asked of the operator, and never in its way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.tasks.first_contact import LATER, early_contact
from infra.tasks.options import Options
from infra.tasks.table import GROUPS
from tests.fab_process import run_fab
from tests.ports import free_port

INVENTORY = """\
unified:
  hosts:
    unified-0:
      ansible_host: 127.0.0.1
      ansible_port: {port}
      moe: {{interface: lo}}
"""


@pytest.fixture
def given(tmp_path: Path) -> dict[str, object]:
    """Options that name a host on which nobody listens."""
    path = tmp_path / "hosts.yml"
    path.write_text(INVENTORY.format(port=free_port()))
    return {"stack": "h200-tp8", "inventory": str(path)}


def test_hosts_are_met_before_the_task_asks_them(given: dict[str, object]) -> None:
    with early_contact(Options(given), ["units"]) as known:
        assert known.given == given
        assert known.early is not None
        (session,) = known.early._sessions.values()
        deadline = time.monotonic() + 10
        while not session.is_settled:
            assert time.monotonic() < deadline, "nobody connects"
            time.sleep(0.01)
        assert session._refusal is not None


@pytest.mark.parametrize("name", LATER)
def test_nobody_is_met_before_the_operator_was_asked(given: dict[str, object], name: str) -> None:
    with early_contact(Options({**given, name: "x"}), ["units"]) as known:
        assert known.early is None


def test_what_is_wrong_with_an_inventory_is_left_to_the_task(given: dict[str, object]) -> None:
    Path(str(given["inventory"])).write_text("unified: 5\n")
    with early_contact(Options(given), ["units"]) as known:
        assert known.early is None
    with early_contact(Options({}), ["units"]) as known:
        assert known.early is None


def test_only_tasks_with_an_inventory_meet_hosts() -> None:
    meeting = [entry for _, entries in GROUPS for entry in entries if entry.asks_first]
    assert "up" in {entry.name for entry in meeting}
    for entry in meeting:
        assert "inventory" in {option.name for option in entry.options}


def test_a_stack_that_is_refused_says_so_and_nothing_of_its_hosts(given: dict[str, object]) -> None:
    words = ("--stack", "h200-tp8", "--inventory", str(given["inventory"]))
    run = run_fab("up", *words, "--set", "engine.version=0.0.1")
    assert run.returncode == 2
    assert "0.0.1" in run.stderr
    assert "127.0.0.1" not in run.stderr
