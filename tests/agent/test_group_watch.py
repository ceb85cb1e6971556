"""The watcher of rank 0's host: what members tell counts in the order in which they said it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.agent.group.config import Config, Group
from infra.agent.group.progress import Counters, Patience
from infra.agent.group.record import HANDED_OVER, OwnRecord, Record, save_record
from infra.agent.group.rules import ADOPT, RUN, RUNNING, STOP, Limits, Memory, Order, Own
from infra.agent.group.talk import OVERTAKEN_S, Question
from infra.agent.group.units import Unit
from infra.agent.group.watch import Watcher
from infra.agent.host import Finished, Host

UNIT = "moe-s-engine@0.service"
LIMITS = Limits(1.0, 60.0, 5, 600.0, 10.0, 2.0, 30.0, 2.0)
# A member before and after it has taken over what `fab up` started.
ADOPTING = Own(RUNNING, 4, adopting=True)
ADOPTED = Own(RUNNING, 4, obeys=(4, ADOPT))


class Serving(Host):
    """A host whose only unit runs."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def run(self, argv: list[str], *_limits: object) -> Finished:
        self.asked.append(argv[1])
        return Finished(1, "", f"{argv[0]}: there is nothing")


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    """Of h0, which has taken its own part of a group over and waits for h1."""
    host = Serving(str(tmp_path))
    group = Group("decode/0", "h0", ("192.0.2.1", 14000), ["h0", "h1"], {UNIT: "h0/0"}, [], [], {})
    patience, counters = Patience(1.0, 1.0, 1.0, 9.0), Counters(("r",), ("g",))
    addresses = {"h0": "192.0.2.1", "h1": "192.0.2.2"}
    config = Config(
        "s", "r", "h0", "docker", [group], None, LIMITS, patience, counters, "", addresses
    )
    own = OwnRecord(epoch=4, adopting=False, invocations={UNIT: "first"}, ended=False)
    save_record(host, "s", "decode/0", Record(own, Memory(4, ADOPT, 0, 0, "", time.monotonic())))
    found = Watcher(host, config)
    found._units.take({UNIT: Unit("active", "", 0, "first")}, time.monotonic())
    return found


def ask(
    watcher: Watcher, own: Own, at: float, boot: str = "b", hold_s: float = 0.0
) -> Order | None:
    """What h1 is told."""
    return watcher.answer(Question("h1", boot, at, hold_s, {"decode/0": own})).get("decode/0")


def hand_over(enabled: Path) -> None:
    enabled.parent.mkdir(parents=True, exist_ok=True)
    enabled.touch()


def test_what_a_member_said_before_it_took_over_comes_late_and_ends_nothing(
    watcher: Watcher,
) -> None:
    """It is read by a thread of its own, which waited behind that of the newer question."""
    assert ask(watcher, ADOPTED, at=2.0) == Order(4, RUN)
    assert ask(watcher, ADOPTING, at=1.0, hold_s=60.0) is None  # nobody waits for the answer
    assert ask(watcher, ADOPTED, at=3.0) == Order(4, RUN)
    assert ask(watcher, ADOPTING, at=4.0) == Order(4, STOP)  # this one is news


def test_a_host_that_was_rebooted_counts_its_time_anew(watcher: Watcher) -> None:
    assert ask(watcher, ADOPTED, at=9000.0) == Order(4, RUN)
    assert ask(watcher, ADOPTING, at=30.0, boot="the next") == Order(4, STOP)


def test_while_groups_are_taken_back_all_speak_and_nobody_acts(watcher: Watcher) -> None:
    enabled = Path(watcher._host.path(HANDED_OVER.format("s")))
    Path(watcher._host.path("/proc")).mkdir()
    watcher.step()  # its unit is not enabled
    ended = ADOPTED._replace(fault="h1/0 ended", obeys=(4, RUN))
    assert ask(watcher, ended, at=2.0) == Order(4, ADOPT)
    watcher.step()
    assert ask(watcher, ended, at=3.0) == Order(4, ADOPT)
    hand_over(enabled)
    watcher.step()
    assert ask(watcher, ended, at=4.0) == Order(4, STOP)


def test_a_watcher_that_holds_carries_out_no_order_that_it_knew(watcher: Watcher) -> None:
    host = watcher._host
    assert isinstance(host, Serving)
    Path(host.path("/proc")).mkdir()
    enabled = Path(host.path(HANDED_OVER.format("s")))
    hand_over(enabled)
    ended = ADOPTED._replace(fault="h1/0 ended", obeys=(4, RUN))
    assert ask(watcher, ended, at=2.0) == Order(4, STOP)  # nobody has stopped a rank yet
    enabled.unlink()
    watcher.step()
    assert "stop" not in host.asked
    enabled.touch()
    watcher.step()
    assert "stop" in host.asked


def test_nothing_is_overtaken_for_long(watcher: Watcher) -> None:
    """A virtual machine that is brought back has its boot, and a time of before."""
    assert ask(watcher, ADOPTED, at=9000.0) == Order(4, RUN)
    key = ("h1", "decode/0")
    question, heard = watcher._latest[key]
    watcher._latest[key] = (question, heard - OVERTAKEN_S)
    assert ask(watcher, ADOPTING, at=30.0) == Order(4, STOP)


def test_members_overtake_only_themselves(watcher: Watcher) -> None:
    assert watcher.answer(Question("h2", "b", 5.0, 0.0, {"decode/0": ADOPTED}))
    assert ask(watcher, ADOPTED, at=2.0) == Order(4, RUN)
