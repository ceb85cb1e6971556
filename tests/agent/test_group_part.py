"""A group's part on one host: nobody hears that its units have stopped while a start of them is on its way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.agent.group import kept_record
from infra.agent.group.config import Config, Group
from infra.agent.group.operation import answer, look
from infra.agent.group.part import LOOK_S, QUEUED_S, Part
from infra.agent.group.progress import Counters, Patience
from infra.agent.group.record import (
    OwnRecord,
    Record,
    hand_over,
    load_record,
    read_wish,
    save_record,
)
from infra.agent.group.rules import (
    ADOPT,
    CHANGING,
    CLEARING,
    RUN,
    RUNNING,
    STOP,
    STOPPED,
    WAITING,
    Limits,
    Memory,
    Order,
    Own,
)
from infra.agent.group.units import Unit, Units
from infra.agent.host import Finished, Host
from infra.launch.fleet import rows_of

NOW = 1000.0
UNIT = "moe-s-engine@0.service"
LIMITS = Limits(1.0, 60.0, 5, 600.0, 10.0, 2.0, 30.0, 2.0)


class Systemd(Host):
    """A host that notes what is asked of systemd."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.asked: list[str] = []
        self.refuses: dict[str, Finished] = {}

    def run(self, argv: list[str], *_limits: object) -> Finished:
        if argv[0] != "systemctl":
            return Finished(1, "", f"{argv[0]}: there is nothing")
        self.asked.append(argv[1])
        return self.refuses.get(argv[1], Finished(0, "", ""))


FULL = "/var/lib/moe-infra/groups cannot be written: No space left on device"


@contextmanager
def full_disk() -> Iterator[None]:
    """Records cannot be written."""

    def refuse(*_record: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_record, "save_record", refuse)
        yield


SLOW = "/var/lib/moe-infra/groups cannot be written: the disk does not answer"


@contextmanager
def slow_disk() -> Iterator[tuple[threading.Event, list[Record]]]:
    """Each write of a record waits until the event is set, and is then listed."""
    may_go_on, written = threading.Event(), list[Record]()

    def wait(host: Host, stack: str, group: str, record: Record) -> None:
        may_go_on.wait()
        save_record(host, stack, group, record)
        written.append(record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_record, "save_record", wait)
        patch.setattr(kept_record, "WAIT_S", 0.05)
        try:
            yield may_go_on, written
        finally:
            may_go_on.set()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make_config(leader: str = "h0") -> Config:
    """Of h1, in a group of two hosts."""
    members = ["h0", "h1"] if leader == "h0" else ["h1", "h0"]
    group = Group("decode/0", leader, ("192.0.2.1", 14000), members, {UNIT: "h1/0"}, [], [], {})
    patience, counters = Patience(1.0, 1.0, 1.0, 9.0), Counters(("r",), ("g",))
    return Config(
        "s", "r", "h1", "docker", [group], None, LIMITS, patience, counters, "", {"h1": "192.0.2.2"}
    )


def make_part(
    host: Host, state: str, *, leader: str = "h0", ended: bool = True
) -> tuple[Part, Units]:
    """A part of epoch 4 of host h1, a member, which has ended on this host."""
    config = make_config(leader)
    own = OwnRecord(epoch=4, adopting=False, invocations={UNIT: "first"}, ended=ended)
    save_record(host, "s", "decode/0", Record(own, Memory(4, RUN, 0, 0, "", 0.0)))
    units = Units(host, [UNIT])
    units.take({UNIT: Unit(state, "", 0, "first")}, NOW)
    return Part(host, config, config.groups[0], units, NOW), units


def hear(part: Part, own: Own, now: float) -> None:
    """What h0 says, and what becomes of it."""
    part.hear_member("h0", own, now)
    part.decide(now)


def settle(part: Part) -> None:
    """Wait until it is known that nothing has outlived the units."""
    part.settle(NOW)
    until(lambda: part.own(NOW).state == STOPPED)


def shown(host: Host) -> Mapping[str, object]:
    """The only group, as `fab status` is told of it."""
    (row,) = rows_of(look(host, "s"), "groups")
    return row


def test_a_start_that_systemd_has_not_taken_is_no_stop(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    part, units = make_part(host, "inactive")
    settle(part)
    part.heard = (Order(5, RUN), NOW)
    (start,) = part.act(NOW)
    part.heard = (Order(5, STOP), NOW + 1)
    late = NOW + 3 * QUEUED_S
    assert (
        part.own(late).state == CHANGING
    )  # whoever counts hosts that have stopped must wait for it
    start()
    assert host.asked == ["reset-failed", "start"]
    part.done(late)
    assert part.own(late + QUEUED_S - 1).state == CHANGING
    units.take({UNIT: Unit("active", "", 0, "second")}, late + 1)
    assert part.own(late + 1).state == RUNNING
    assert part.own(late + 1).epoch == 5


def test_a_start_that_systemd_has_wait_is_none_until_it_begins(tmp_path: Path) -> None:
    """Docker comes first, after a boot: that may take minutes, and costs no restart."""
    host = Systemd(tmp_path)
    part, units = make_part(host, "inactive")
    settle(part)
    part.heard = (Order(5, RUN), NOW)
    (start,) = part.act(NOW)
    start()
    part.done(NOW)
    units.take({UNIT: Unit("inactive", "does not run", 0, "first", waits=True)}, NOW + 1)
    late = NOW + 20 * QUEUED_S
    part.settle(late)
    assert part.own(late) == Own(WAITING, 5, serves=True, obeys=(5, RUN))
    part.heard = (Order(5, RUN), late)
    assert not part.act(late)
    units.take({UNIT: Unit("active", "", 40, "second")}, late)
    part.settle(late)
    assert part.own(late).state == RUNNING
    units.take({UNIT: Unit("active", "", 41, "third")}, late)
    assert part.own(late).fault == "h1/0 was started by somebody else"


def test_a_rank_that_has_ended_is_a_fault_whoever_asks_for_it_again(tmp_path: Path) -> None:
    """Somebody's `systemctl start` behind docker that comes back: the epoch has ended all the same."""
    part, units = make_part(Systemd(tmp_path), "active", ended=False)
    part.heard = (Order(4, RUN), NOW)
    units.take({UNIT: Unit("failed", "was ended by signal 9", 0, "first", waits=True)}, NOW)
    assert part.own(NOW).fault == "h1/0 was ended by signal 9"


def test_a_start_that_waits_is_taken_back_with_its_epoch(tmp_path: Path) -> None:
    """Of a watcher that began anew meanwhile, too."""
    (tmp_path / "proc").mkdir()
    host = Systemd(tmp_path)
    part, units = make_part(host, "inactive", ended=False)
    units.take({UNIT: Unit("inactive", "does not run", 0, "", waits=True)}, NOW)
    part.settle(NOW)
    assert part.own(NOW).state == WAITING
    part.heard = (Order(4, STOP), NOW)
    for deed in part.act(NOW):
        deed()
    assert host.asked == ["stop"]
    assert part.own(NOW).state != STOPPED


def test_ranks_that_a_watcher_was_about_to_stop_when_it_ended_are_a_fault(tmp_path: Path) -> None:
    part, _ = make_part(Systemd(tmp_path), "active")
    part.heard = (Order(4, RUN), NOW)
    part.settle(NOW)
    assert part.own(NOW).fault == "its ranks were to be stopped, and run"


def test_ranks_whose_start_a_watcher_did_not_outlive_are_known_again(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    _, units = make_part(host, "active")
    own = OwnRecord(epoch=5, adopting=False, invocations={}, ended=False)
    save_record(host, "s", "decode/0", Record(own, Memory(5, RUN, 0, 0, "", 0.0)))
    part = Part(host, make_config(), make_config().groups[0], units, NOW)
    part.settle(NOW)
    assert part.own(NOW).fault == ""
    units.take({UNIT: Unit("active", "", 0, "by hand")}, NOW)
    assert part.own(NOW).fault == "h1/0 was started by somebody else"


def test_a_stop_is_asked_of_systemd_once_and_after_a_look_around(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    host = Systemd(tmp_path)
    part, _ = make_part(host, "active")
    part.heard = (Order(4, STOP), NOW)
    deeds = part.act(NOW)
    for deed in deeds:
        deed()
    part.done(NOW)
    assert host.asked == ["stop"]
    assert not part.act(NOW + 1.0)
    (kill,) = part.act(NOW + 2.5)
    kill()
    assert host.asked == ["stop", "kill"]
    part.done(NOW + 2.5)
    # systemd ends what is left of the container: that must not be killed, too
    assert not part.act(NOW + 12.4)
    assert len(part.act(NOW + 12.5)) == 1


def stat_of(pid: int, name: str, state: str) -> str:
    return f"{pid} ({name}) {state} 1" + " 0" * 20


def test_a_process_that_cannot_be_looked_at_holds_up_no_stop_and_is_named(
    tmp_path: Path, hang: Callable[[Path], None]
) -> None:
    """Whose memory a wedged driver has locked: its command line is never read."""
    texts = {
        "39/stat": stat_of(39, "engine", "S"),
        "39/cmdline": "engine\0--serve\0",
        "40/stat": stat_of(40, "python3", "D"),
        "40/comm": "python3\n",
        "40/wchan": "nv_wait",
    }
    for name, text in texts.items():
        (tmp_path / f"proc/{name}").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"proc/{name}").write_text(text)
    hang(tmp_path / "proc/40/cmdline")
    host = Systemd(tmp_path)
    part, units = make_part(host, "active", ended=False)
    units.take({UNIT: Unit("active", "", 39, "first")}, NOW)
    part.heard = (Order(4, STOP), NOW)
    begun = time.monotonic()
    for deed in part.act(NOW):
        deed()
    assert time.monotonic() - begun < 2 * LOOK_S
    assert host.asked == ["stop"]
    part.done(NOW)
    units.take({UNIT: Unit("inactive", "", 0, "first")}, NOW + 1)
    part.settle(NOW + 1)
    facts = tmp_path / "var/lib/moe-infra/evidence/s/decode-0-4/facts.json"
    until((facts.parent / "journal.txt").exists)
    assert json.loads(facts.read_text())["processes"] == [
        "39 S waits in -: engine --serve",
        "40 D waits in nv_wait: [python3] (no answer)",
    ]


def test_evidence_that_is_not_kept_in_time_holds_up_no_start(
    tmp_path: Path, hang: Callable[[Path], None]
) -> None:
    """At most five seconds, with the look before the stop."""
    hang(tmp_path / "var/lib/moe-infra/evidence/s/decode-0-4/facts.json")
    host = Systemd(tmp_path)
    part, units = make_part(host, "active", ended=False)
    units.take({UNIT: Unit("failed", "was ended by signal 9", 0, "first")}, NOW)
    is_known = threading.Event()
    part.wake = is_known.set  # that nothing has outlived the unit: evidence never is
    part.settle(NOW)
    assert is_known.wait(5)
    assert part.own(NOW + 3.9).state == CLEARING
    part.heard = (Order(5, RUN), NOW + 5 - LOOK_S)
    part.settle(NOW + 5 - LOOK_S)
    assert [deed() for deed in part.act(NOW + 5 - LOOK_S)] == [None]
    assert host.asked[-1] == "start"


def test_a_process_that_outlives_its_unit_holds_up_the_start_and_uses_up_none(
    tmp_path: Path,
) -> None:
    """A rank in a wedged driver: its devices are not free before it has ended."""
    texts = {
        "cgroup": f"0::/moe_infra.slice/moe_infra-s.slice/{UNIT}",
        "stat": stat_of(40, "python3", "D"),
        "comm": "python3",
    }
    (tmp_path / "proc/40").mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / "proc/40" / name).write_text(text)
    host = Systemd(tmp_path)
    part, units = make_part(host, "failed", leader="h1", ended=False)
    units.take({UNIT: Unit("failed", "was ended by signal 9", 0, "first")}, NOW)
    hear(part, Own(RUNNING, 4), NOW)
    assert part.order == Order(4, STOP)
    said = "h1/0 was ended by signal 9; process 40 (python3) of h1/0 has outlived its unit"
    part.settle(NOW)
    until(lambda: part.own(NOW + 5).fault == said)
    for later in (8.0, 100.0, 2000.0):
        part.settle(NOW + later)
        hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + later)
        assert part.own(NOW + later).state == CLEARING
    part.show(NOW + 2000)
    row = shown(host)
    assert (row["phase"], row["attempts"], row["why"]) == (
        STOP,
        1,
        "h1: h1/0 was ended by signal 9",
    )
    assert row["waits_for"] == [f"h1: {said}"]
    shutil.rmtree(tmp_path / "proc/40")
    until(lambda: part.own(NOW + 2000).state == STOPPED)
    hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + 2000)
    assert part.order == Order(5, RUN)


@pytest.mark.parametrize("order", [Order(4, STOP), Order(4, RUN, age_s=10.1)])
def test_a_full_disk_keeps_no_rank_from_being_stopped(tmp_path: Path, order: Order) -> None:
    """It is told to, or rank 0's host is lost; then nothing is started while the disk takes nothing."""
    (tmp_path / "proc").mkdir()
    host = Systemd(tmp_path)
    part, units = make_part(host, "active", ended=False)
    part.heard = (order._replace(age_s=0.0), NOW - order.age_s)
    with full_disk():
        part.settle(NOW)
        for deed in part.act(NOW):
            deed()
        part.done(NOW)
        assert host.asked == ["stop"]
        units.take({UNIT: Unit("inactive", "", 0, "first")}, NOW + 1)
        part.settle(NOW + 1)
        part.heard = (Order(5, RUN), NOW + 20)  # evidence has been kept for long
        part.settle(NOW + 20)
        own = part.own(NOW + 20)
        assert (own.state, own.fault) == (CLEARING, FULL)
        assert not part.act(NOW + 20)
    part.settle(NOW + 20.5)
    assert part.own(NOW + 20.5).fault == FULL  # it is not tried ten times a second
    part.settle(NOW + 21)
    assert part.own(NOW + 21).state == STOPPED
    assert load_record(host, "s", "decode/0", NOW).own.ended
    assert [deed() for deed in part.act(NOW + 21)] == [None]
    assert host.asked[-1] == "start"
    assert load_record(host, "s", "decode/0", NOW).own.epoch == 5


def test_a_start_that_the_disk_does_not_take_is_none(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    part, _ = make_part(host, "inactive")
    settle(part)
    part.heard = (Order(5, RUN), NOW)
    with full_disk():
        assert not part.act(NOW)
        assert part.own(NOW).epoch == 4
        assert part.own(NOW).fault == FULL
    assert host.asked == []


def test_rank_0_s_host_ends_an_epoch_without_a_disk_and_begins_none(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    part, units = make_part(host, "failed", leader="h1", ended=False)
    ended = {UNIT: Unit("failed", "was ended by signal 9", 0, "first")}
    units.take(ended, NOW)
    with full_disk():
        hear(part, Own(RUNNING, 4), NOW)
        assert part.order == Order(4, STOP)
        for later in (1.0, 7.0, 8.0):  # the pause is over, evidence kept, and everybody has stopped
            part.settle(NOW + later)
            hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + later)
        assert part.order == Order(4, STOP)
        part.show(NOW + 8)
    (view,) = tmp_path.glob("run/moe-infra/groups/s/*.json")
    assert f"h1: h1/0 was ended by signal 9; {FULL}" in view.read_text()
    row = shown(host)
    assert (row["phase"], row["attempts"], row["why"]) == (
        STOP,
        1,
        "h1: h1/0 was ended by signal 9",
    )
    part.settle(NOW + 9)
    hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + 9)
    assert part.order == Order(5, RUN)
    assert load_record(host, "s", "decode/0", NOW).memory.epoch == 5


def test_a_disk_that_is_slow_holds_up_no_stop_and_every_start(tmp_path: Path) -> None:
    """Of rank 0's host, whose members would else take it for lost."""
    host = Systemd(tmp_path)
    part, units = make_part(host, "failed", leader="h1", ended=False)
    units.take({UNIT: Unit("failed", "was ended by signal 9", 0, "first")}, NOW)
    with slow_disk() as (may_go_on, written):
        hear(part, Own(RUNNING, 4), NOW)
        assert part.order == Order(4, STOP)
        for later in (1.0, 7.0, 8.0):  # the pause is over, evidence kept, and everybody has stopped
            part.settle(NOW + later)
            hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + later)
        own = part.own(NOW + 8)
        assert (own.state, own.fault) == (CLEARING, f"h1/0 was ended by signal 9; {SLOW}")
        part.show(NOW + 8)
        assert shown(host)["phase"] == STOP
        assert not written
        may_go_on.set()
        until(lambda: bool(written))
        part.settle(NOW + 9)
        assert part.own(NOW + 9).state == STOPPED
        hear(part, Own(STOPPED, 4, obeys=(4, STOP)), NOW + 9)
        assert part.order == Order(5, RUN)
    assert load_record(host, "s", "decode/0", NOW).memory.epoch == 5


def test_a_start_begins_once_when_a_slow_disk_has_taken_it(tmp_path: Path) -> None:
    """However slow it is each time: what it has taken at last is not written anew."""
    host = Systemd(tmp_path)
    part, _ = make_part(host, "inactive")
    settle(part)
    with slow_disk() as (may_go_on, written):
        for later in (0.0, 0.1, 5.0):
            part.heard = (Order(5, RUN), NOW + later)
            part.settle(NOW + later)
            assert not part.act(NOW + later)
            assert part.own(NOW + later).epoch == 4
        assert host.asked == []
        may_go_on.set()
        until(lambda: bool(written))
        may_go_on.clear()
        part.heard = (Order(5, RUN), NOW + 10)
        part.settle(NOW + 10)
        assert [deed() for deed in part.act(NOW + 10)] == [None]
        assert host.asked[-1] == "start"
        assert [record.own.epoch for record in written] == [5]
        assert load_record(host, "s", "decode/0", NOW).own.epoch == 5


def test_what_a_full_disk_did_not_take_is_over_when_a_group_is_handed_back(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    part, _ = make_part(host, "failed", leader="h1", ended=False)
    with full_disk():
        part.decide(NOW)
        part.show(NOW)
    assert shown(host)["phase"] == STOP
    hand_over(host, "s")
    assert shown(host)["phase"] == ADOPT


def wish(host: Host, **named: object) -> None:
    request = {"action": "restart", "stack": "s", "groups": ["decode/0"], "operator": "ann"}
    answer({**request, **named}, host)


@pytest.mark.parametrize(
    ("named", "after"),
    [
        ({"epochs": {"decode/0": 4}}, Order(4, STOP)),
        ({"epochs": {"decode/0": 3}}, Order(4, RUN)),  # asked again: epoch 3 has ended for it
        ({}, Order(4, STOP)),  # of an older program
    ],
)
def test_a_wish_ends_the_epoch_that_was_seen_and_no_other(
    tmp_path: Path, named: dict[str, object], after: Order
) -> None:
    host = Systemd(tmp_path)
    part, _ = make_part(host, "active", leader="h1", ended=False)
    hear(part, Own(RUNNING, 4), NOW)
    wish(host, **named)
    part.decide(NOW)
    assert part.order == after
    assert read_wish(host, "s", "decode/0") is None


@pytest.mark.parametrize(
    ("done", "fault", "state"),
    [
        (Finished(1, "", f"Failed to start {UNIT}: Unit {UNIT} is masked.\n"), "masked.", CLEARING),
        (
            Finished(None, "", "systemctl: ran over its time"),
            "",
            CHANGING,
        ),  # it may have been taken
    ],
)
def test_a_start_that_systemd_does_not_take_is_named_and_not_awaited(
    tmp_path: Path, done: Finished, fault: str, state: str
) -> None:
    host = Systemd(tmp_path)
    part, units = make_part(host, "failed")
    units.take({UNIT: Unit("failed", "was ended by signal 15", 0, "first")}, NOW)
    host.refuses["start"] = done
    settle(part)
    part.heard = (Order(5, RUN), NOW)
    for deed in part.act(NOW):
        deed()
    part.done(NOW)
    own = part.own(NOW)
    assert (own.state, own.epoch) == (state, 5)
    assert own.fault == (f"systemctl start: {done.last_words}" if fault else "")
    host.refuses.clear()
    part.settle(NOW + 1)
    part.settle(NOW + 20)
    part.heard = (Order(6, RUN), NOW + 40)  # what is kept of epoch 5 is kept
    assert [deed() for deed in part.act(NOW + 40)] == [None]
    assert part.own(NOW + 40).fault == ""
