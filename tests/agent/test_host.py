"""The host that the agent runs on: programs end with the agent, and what they would leave is cleaned up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from infra.agent.host import Finished, Host


def test_an_agent_that_ends_kills_cleans_up_and_starts_nothing_more(tmp_path: Path) -> None:
    host, mark = Host(), tmp_path / "cleaned"
    ended: list[Finished] = []

    def work() -> None:
        with host.cleaning(["touch", str(mark)]):
            ended.append(host.run(["sleep", "60"], 60.0))

    worker = threading.Thread(target=work)
    worker.start()
    while not host._children:
        time.sleep(0.01)
    cleanups = host.end_children()
    worker.join(5.0)
    assert [each.wait(5.0) for each in cleanups] == [0]
    assert [done.exit_code for done in ended] == [-9]
    assert mark.exists()
    assert host.run(["true"]).exit_code is None


def test_what_ends_well_needs_no_cleaning(tmp_path: Path) -> None:
    host, mark = Host(), tmp_path / "cleaned"
    with host.cleaning(["touch", str(mark)]):
        assert host.run(["true"]).exit_code == 0
    assert host.end_children() == []
    assert not mark.exists()


def test_an_error_cleans_up(tmp_path: Path) -> None:
    host, mark = Host(), tmp_path / "cleaned"
    with pytest.raises(KeyError), host.cleaning(["touch", str(mark)]):
        raise KeyError
    assert mark.exists()
