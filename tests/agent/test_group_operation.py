"""Groups are taken from a watcher: it ends, or the command says that it may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.agent.group.channel import key_path
from infra.agent.group.operation import answer
from infra.agent.group.record import (
    HANDED_OVER,
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


KEY, NEXT_KEY = "ab" * 32, "cd" * 32


def arm(host: Systemd, key: str) -> None:
    answer({"action": "arm", "stack": "s", "key": key}, host)


def mark(host: Systemd) -> object:
    watch = answer({"action": "status", "stack": "s"}, host)["watch"]
    assert isinstance(watch, dict)
    return watch["key"]


def test_a_hand_over_leaves_the_key_for_root_alone_and_tells_a_mark_of_it(watched: Systemd) -> None:
    assert mark(watched) == ""
    arm(watched, KEY)
    place = Path(watched.path(key_path("s")))
    assert (place.read_text(), place.stat().st_mode & 0o777) == (KEY + "\n", 0o600)
    first = str(mark(watched))
    assert (len(first), first in KEY) == (16, False)
    arm(watched, NEXT_KEY)  # it was not enabled: nobody speaks with the first one
    assert mark(watched) not in ("", first)
    assert all(KEY not in words for words in watched.asked)


def test_a_host_that_was_handed_over_keeps_its_key_and_one_without_gets_it(
    watched: Systemd,
) -> None:
    arm(watched, KEY)
    watched.put(HANDED_OVER.format("s"), "")
    first = mark(watched)
    arm(watched, NEXT_KEY)
    assert mark(watched) == first
    Path(watched.path(key_path("s"))).unlink()
    arm(watched, NEXT_KEY)
    assert mark(watched) not in ("", first)


def test_down_removes_the_key(watched: Systemd) -> None:
    arm(watched, KEY)
    act(watched, "forget")
    assert not Path(watched.path(key_path("s"))).exists()
