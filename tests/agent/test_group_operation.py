"""Groups are taken from a watcher: it ends, or the command says that it may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.agent.group.operation import answer
from infra.agent.group.record import (
    OwnRecord,
    Record,
    Wish,
    ask_restart,
    load_record,
    read_wish,
    save_record,
)
from infra.agent.group.rules import RUN, Memory
from infra.agent.host import Finished, Refused
from tests.agent.stubborn_host import StubbornHost

UNIT = "moe-s-watch.service"


class Systemd(StubbornHost):
    """A host whose systemd knows the watcher, or does not answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers = True
        self.asked: list[str] = []

    def has_systemd(self) -> bool:
        return True

    def run(self, argv: list[str], *_limits: object) -> Finished:
        if not self.answers:
            return Finished(1, "", "Failed to get properties: Connection timed out")
        if argv[1] != "show":
            self.asked.append(" ".join(argv[1:]))
        shown = "loaded" if "--value" in argv else "LoadState=loaded\nActiveState=active"
        return Finished(0, shown + "\n", "")


@pytest.fixture
def watched(tmp_path: Path) -> Systemd:
    """A host whose watcher looks after epoch 4 of a group."""
    host = Systemd(tmp_path)
    host.put(f"/etc/systemd/system/{UNIT}", "")
    own = OwnRecord(epoch=4, adopting=False, invocations={}, ended=False)
    save_record(host, "s", "decode/0", Record(own, Memory(4, RUN, 0, 0, "", 0.0)))
    return host


def act(host: Systemd, action: str) -> None:
    answer({"action": action, "stack": "s"}, host)


@pytest.mark.parametrize("action", ["hold", "disarm", "forget"])
def test_a_systemd_that_does_not_say_is_not_taken_for_one_without_a_watcher(
    action: str, watched: Systemd
) -> None:
    watched.answers = False
    with pytest.raises(Refused, match="Connection timed out"):
        act(watched, action)
    assert load_record(watched, "s", "decode/0", 0.0).memory.phase == RUN


def test_a_watcher_that_holds_keeps_what_it_remembers(watched: Systemd) -> None:
    act(watched, "hold")
    assert watched.asked == [f"disable --no-reload -- {UNIT}"]
    assert not load_record(watched, "s", "decode/0", 0.0).own.adopting
    act(watched, "disarm")
    assert watched.asked[1:] == [f"disable --now --no-reload -- {UNIT}"]
    assert load_record(watched, "s", "decode/0", 0.0).own.adopting


@pytest.mark.parametrize("epoch", [None, 4])
def test_a_restart_that_was_asked_for_before_is_not_granted_after_a_hand_over(
    epoch: int | None, watched: Systemd
) -> None:
    ask_restart(watched, "s", "decode/0", Wish("ann", epoch))
    act(watched, "disarm")
    assert read_wish(watched, "s", "decode/0") is None
