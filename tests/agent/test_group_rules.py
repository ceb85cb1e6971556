"""When a group starts, stops and is given up: the table of cases of docs/decisions.md 21."""

from __future__ import annotations

import pytest

from infra.agent.group.rules import (
    ADOPT,
    BEGIN,
    CHANGING,
    CLEARING,
    END,
    FAILED,
    KILL,
    NOTHING,
    PARTIAL,
    RUN,
    RUNNING,
    STOP,
    STOPPED,
    TAKE_OVER,
    WAITING,
    Limits,
    Member,
    Memory,
    Order,
    Own,
    awaited,
    follow,
    lead,
    pause_s,
)

LIMITS = Limits(
    first_pause_s=1.0,
    longest_pause_s=60.0,
    max_restarts=5,
    stable_s=600.0,
    lost_s=10.0,
    fresh_s=2.0,
    start_s=30.0,
    grace_s=2.0,
)
NOW = 1000.0

# ruff: noqa: E501 - a table
# name, what the host is, the latest order, what it does
FOLLOWING: tuple[tuple[str, Own, Order | None, str], ...] = (
    ("runs the epoch", Own(RUNNING, 4), Order(4, RUN), NOTHING),
    ("a rank of its own has ended: rank 0 decides", Own(PARTIAL, 4), Order(4, RUN), NOTHING),
    ("all its ranks have ended: never again in this epoch", Own(STOPPED, 4), Order(4, RUN), NOTHING),
    ("a newer epoch", Own(STOPPED, 4), Order(5, RUN), BEGIN),
    ("a newer epoch, told too long ago", Own(STOPPED, 4), Order(5, RUN, 2.1), NOTHING),
    ("an older epoch", Own(STOPPED, 4), Order(3, RUN), NOTHING),
    ("a first epoch", Own(STOPPED, 0), Order(1, RUN), BEGIN),
    ("told to stop", Own(RUNNING, 4), Order(4, STOP), END),
    ("told to stop what is left", Own(PARTIAL, 4), Order(4, STOP), END),
    ("stops already", Own(CHANGING, 4, stopping_s=1.9), Order(4, STOP), NOTHING),
    ("does not stop", Own(CHANGING, 4, stopping_s=2.1), Order(4, STOP), KILL),
    ("keeps evidence of what has stopped", Own(CLEARING, 4), Order(4, STOP), NOTHING),
    ("keeps evidence, and rank 0's host is lost", Own(CLEARING, 4), Order(4, STOP, 10.1), NOTHING),
    ("keeps evidence of ranks that ended by themselves", Own(CLEARING, 4), Order(4, RUN), NOTHING),
    ("keeps evidence, and a newer epoch begins", Own(CLEARING, 4), Order(5, RUN), NOTHING),
    ("has stopped", Own(STOPPED, 4), Order(4, STOP), NOTHING),
    ("given up", Own(RUNNING, 4), Order(4, FAILED), END),
    ("given up and stopped", Own(STOPPED, 4), Order(4, FAILED), NOTHING),
    ("rank 0's host is silent for a while", Own(RUNNING, 4), Order(4, RUN, 9.9), NOTHING),
    ("rank 0's host is lost", Own(RUNNING, 4), Order(4, RUN, 10.1), END),
    ("rank 0's host is lost and all is stopped", Own(STOPPED, 4), Order(5, RUN, 10.1), NOTHING),
    ("never heard anything", Own(RUNNING, 4), None, END),
    ("never heard anything and stopped", Own(STOPPED, 0), None, NOTHING),
    ("handed over, hosts have not met", Own(RUNNING, 0, adopting=True), None, NOTHING),
    ("handed over, rank 0's host answers", Own(RUNNING, 0, adopting=True), Order(1, ADOPT), TAKE_OVER),
    ("handed over, and a rank ended", Own(PARTIAL, 0, adopting=True), Order(1, ADOPT), NOTHING),
    ("handed over into a running epoch", Own(RUNNING, 0, adopting=True), Order(7, RUN), END),
    ("met one host of several, then lost it", Own(RUNNING, 1, adopting=True), Order(1, ADOPT, 10.1), NOTHING),
    ("took over, then lost rank 0's host before all had met", Own(RUNNING, 1), Order(1, ADOPT, 10.1), NOTHING),
    ("systemd has the start wait", Own(WAITING, 4), Order(4, RUN), NOTHING),
    ("a start that waits is taken back", Own(WAITING, 4), Order(4, STOP), END),
    ("a start that waits, and a newer epoch", Own(WAITING, 4), Order(5, RUN), END),
    ("a start that waits, and rank 0's host is lost", Own(WAITING, 4), Order(4, RUN, 10.1), END),
    ("runs another epoch", Own(RUNNING, 3), Order(4, RUN), END),
    ("runs a newer epoch than rank 0's host knows", Own(RUNNING, 5), Order(4, RUN), END),
    ("nothing is handed to it that does not run", Own(STOPPED, 0, adopting=True), Order(1, ADOPT), NOTHING),
    ("between two states", Own(CHANGING, 4), Order(4, RUN), NOTHING),
)  # fmt: skip


@pytest.mark.parametrize(
    ("own", "order", "action"),
    [row[1:] for row in FOLLOWING],
    ids=[row[0] for row in FOLLOWING],
)
def test_a_host_follows(own: Own, order: Order | None, action: str) -> None:
    assert follow(own, order, LIMITS) == action


def run(epoch: int = 4, **changes: object) -> Memory:
    """A group that runs since a minute."""
    memory = Memory(epoch, RUN, 0, 0, "", NOW - 60)
    return memory._replace(**changes)  # type: ignore[arg-type]  # fields of Memory


def stop(attempts: int = 1, since: float = NOW - 60) -> Memory:
    """A group between two epochs."""
    return Memory(4, STOP, 1, attempts, "why", since)


def members(*owns: Own, heard: float | None = NOW) -> list[Member]:
    """The leader's own host, heard now, and others."""
    return [Member(f"h{i}", own, NOW if i == 0 else heard) for i, own in enumerate(owns)]


UP, DOWN = Own(RUNNING, 4), Own(STOPPED, 4, obeys=(4, STOP))

# name, what is remembered, the hosts, phase and epoch and why afterwards
LEADING: tuple[tuple[str, Memory, list[Member], tuple[str, int, str]], ...] = (
    ("all is well", run(), members(UP, UP), (RUN, 4, "")),
    ("a rank of a member ended", run(), members(UP, Own(PARTIAL, 4, fault="h1/0 ended")), (STOP, 4, "h1: h1/0 ended")),
    ("a rank of its own ended", run(), members(Own(PARTIAL, 4, fault="h0/0 ended"), UP), (STOP, 4, "h0: h0/0 ended")),
    ("an engine hangs", run(), members(UP, Own(RUNNING, 4, fault="no token")), (STOP, 4, "h1: no token")),
    ("a member was rebooted", run(), members(UP, DOWN), (STOP, 4, "h1: its ranks do not run")),
    ("its own host was rebooted", run(), members(DOWN, UP), (STOP, 4, "h0: its ranks do not run")),
    ("a member came back with an empty disk", run(), members(UP, Own(STOPPED, 0)), (STOP, 4, "h1: its ranks do not run")),
    ("a member is silent for a while", run(), members(UP, UP, heard=NOW - 9.9), (RUN, 4, "")),
    ("a member is lost", run(), members(UP, UP, heard=NOW - 10.1), (STOP, 4, "h1: silent for more than 10 s")),
    ("a member was never heard of since this watcher began", run(since=NOW - 10.1), members(UP, UP, heard=None), (STOP, 4, "h1: silent for more than 10 s")),
    ("this watcher has just begun", run(since=NOW - 1), members(UP, UP, heard=None), (RUN, 4, "")),
    ("a member runs another epoch", run(), members(UP, Own(RUNNING, 3)), (STOP, 4, "h1: its ranks are of epoch 3, not 4")),
    ("a member's ranks were started by somebody", run(), members(UP, Own(RUNNING, 0, adopting=True)), (STOP, 4, "h1: its ranks were started by somebody else")),
    ("a member has not begun yet", run(since=NOW - 5, starting=("h1",)), members(UP, Own(STOPPED, 3)), (RUN, 4, "")),
    ("a member does not begin", run(since=NOW - 31, starting=("h1",)), members(UP, Own(STOPPED, 3)), (STOP, 4, "h1: its ranks were not started within 30 s")),
    ("a member cannot begin", run(since=NOW - 31, starting=("h1",)), members(UP, Own(CLEARING, 3, fault="/var is full")), (STOP, 4, "h1: its ranks were not started within 30 s: /var is full")),
    ("a member cannot begin yet", run(since=NOW - 5, starting=("h1",)), members(UP, Own(CLEARING, 3, fault="/var is full")), (RUN, 4, "")),
    ("a member begins and has ended before it was seen", run(since=NOW - 5, starting=("h1",)), members(UP, Own(CLEARING, 4, fault="h1/0 ended")), (STOP, 4, "h1: h1/0 ended")),
    ("a member's start is taken by nobody", run(since=NOW - 5, starting=("h1",)), members(UP, Own(STOPPED, 4, fault="u is masked")), (STOP, 4, "h1: u is masked")),
    ("a member clears up before it begins", run(since=NOW - 5, starting=("h1",)), members(UP, Own(CLEARING, 3, fault="h1/0 ended")), (RUN, 4, "")),
    ("a member begins and fails at once", run(since=NOW - 5, starting=("h1",)), members(UP, Own(PARTIAL, 4, fault="h1/0 ended")), (STOP, 4, "h1: h1/0 ended")),
    ("systemd has a member's start wait, for docker after a boot", run(since=NOW - 900, starting=("h1",)), members(UP, Own(WAITING, 4)), (RUN, 4, "")),
    ("a rank ended while another one's start waits", run(since=NOW - 5, starting=("h1",)), members(UP, Own(WAITING, 4, fault="h1/0 ended")), (STOP, 4, "h1: h1/0 ended")),
    ("a member's start waits although all shall stop", stop(), members(DOWN, Own(WAITING, 4, obeys=(4, STOP))), (STOP, 4, "why")),
    ("the row is full", run(attempts=5), members(UP, DOWN), (FAILED, 4, "given up after 5 restarts in a row; h1: its ranks do not run")),
    ("given up stays given up", run(phase=FAILED), members(DOWN, DOWN), (FAILED, 4, "")),
    ("all have stopped and the pause is over", stop(), members(DOWN, DOWN), (RUN, 5, "why")),
    ("the pause is not over", stop(since=NOW - 0.9), members(DOWN, DOWN), (STOP, 4, "why")),
    ("the third pause is longer", stop(attempts=3, since=NOW - 3.9), members(DOWN, DOWN), (STOP, 4, "why")),
    ("a member still stops", stop(), members(DOWN, Own(CHANGING, 4)), (STOP, 4, "why")),
    ("a member still keeps evidence", stop(), members(DOWN, DOWN._replace(state=CLEARING)), (STOP, 4, "why")),
    ("a member's ranks ended and it keeps evidence", run(), members(UP, Own(CLEARING, 4)), (STOP, 4, "h1: its ranks do not run")),
    ("a member is lost while stopped", stop(), members(DOWN, DOWN, heard=NOW - 10.1), (STOP, 4, "why")),
    ("a member has never been heard of", stop(), members(DOWN, DOWN, heard=None), (STOP, 4, "why")),
    ("a member remembers a newer epoch", stop(), members(DOWN, DOWN._replace(epoch=9)), (RUN, 10, "why")),
    ("a member says stopped and has not heard of the stop", stop(), members(DOWN, Own(STOPPED, 3, obeys=(4, RUN))), (STOP, 4, "why")),
    ("a group of one host", stop(), members(DOWN), (RUN, 5, "why")),
    ("handed over, not all have met", run(phase=ADOPT), members(UP, UP, heard=None), (ADOPT, 4, "")),
    ("handed over, all have met", run(phase=ADOPT), members(UP, UP), (RUN, 4, "")),
    ("handed over, one has not taken over yet", run(phase=ADOPT), members(UP, Own(RUNNING, 0, adopting=True)), (ADOPT, 4, "")),
    ("handed over, one met and is silent again", run(phase=ADOPT), members(UP, UP, Own(RUNNING, 0, adopting=True), heard=NOW - 99), (ADOPT, 4, "")),
    ("handed over, and a rank ended", run(phase=ADOPT), members(UP, Own(STOPPED, 0, adopting=True)), (STOP, 4, "h1: its ranks do not run")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "hosts", "expected"),
    [row[1:] for row in LEADING],
    ids=[row[0] for row in LEADING],
)
def test_the_host_of_rank_0_leads(
    memory: Memory, hosts: list[Member], expected: tuple[str, int, str]
) -> None:
    after = lead(memory, hosts, NOW, LIMITS)
    assert (after.phase, after.epoch, after.why) == expected


def test_a_restart_is_counted_and_waits_longer_each_time() -> None:
    pauses = []
    memory = run()
    for number in range(1, 6):
        memory = lead(memory, members(UP, DOWN), NOW, LIMITS)
        assert (memory.restarts, memory.attempts) == (number, number)
        pauses.append(pause_s(memory.attempts, LIMITS))
        memory = memory._replace(phase=RUN)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert pauses[0] <= 2.0  # the first within two seconds
    assert pause_s(40, LIMITS) == 60.0


def test_a_start_that_systemd_had_wait_for_long_counts_as_begun() -> None:
    """Else a host whose units are between two states for a moment would be late, and its watcher anew, too."""
    memory = run(since=NOW - 900, starting=("h0", "h1"))
    memory = lead(memory, members(UP, Own(WAITING, 4)), NOW, LIMITS)
    assert (memory.phase, memory.starting) == (RUN, ())
    assert lead(memory, members(UP, Own(CHANGING, 4)), NOW, LIMITS).phase == RUN


def test_a_restart_that_an_operator_asks_for_is_not_counted_and_forgets_the_row() -> None:
    for memory in (run(attempts=5), run(phase=FAILED, attempts=5), stop(attempts=5)):
        after = lead(memory, members(UP, UP), NOW, LIMITS, "somebody asks")
        assert (after.phase, after.attempts) == (STOP, 0)
        assert after.why.startswith("somebody asks")
        assert after.restarts == memory.restarts
        assert lead(after, members(DOWN, DOWN), NOW, LIMITS).phase == RUN


def test_a_restart_that_is_asked_for_keeps_the_latest_fault() -> None:
    hosts = members(UP, Own(STOPPED, 4, fault="decode-0/1 ended"))
    crashed = lead(run(), hosts, NOW, LIMITS)
    assert crashed.why == "h1: decode-0/1 ended"
    asked = lead(crashed, hosts, NOW, LIMITS, "ann asks")
    again = lead(asked, hosts, NOW, LIMITS, "bob asks")
    assert asked.why == "ann asks; before that: h1: decode-0/1 ended"
    assert again.why == "bob asks; before that: h1: decode-0/1 ended"
    assert lead(again._replace(phase=RUN), hosts, NOW, LIMITS).why == "h1: decode-0/1 ended"


def test_who_asked_before_is_no_fault() -> None:
    asked = lead(run(), members(UP, UP), NOW, LIMITS, "ann asks")
    assert lead(asked, members(UP, UP), NOW, LIMITS, "bob asks").why == "bob asks"


def test_the_row_is_forgotten_after_ten_minutes_of_serving_not_of_loading() -> None:
    memory = run(attempts=3)
    loading = [Member("h0", UP._replace(serves=True), NOW), Member("h1", UP, NOW)]
    assert lead(memory, loading, NOW, LIMITS).served_since is None
    serving = [member._replace(own=UP._replace(serves=True)) for member in loading]
    memory = lead(memory, serving, NOW, LIMITS)
    assert (memory.served_since, memory.attempts) == (NOW, 3)
    heard = [member._replace(heard=NOW + 600) for member in serving]
    assert lead(memory, heard, NOW + 600, LIMITS).attempts == 0


def test_what_a_stopped_group_waits_for_is_named() -> None:
    memory = stop()
    hosts = members(DOWN, Own(CHANGING, 4, fault="port 7100 is held"), DOWN)
    hosts[2] = hosts[2]._replace(heard=NOW - 11)
    assert awaited(memory, hosts, NOW, LIMITS) == ("h1: port 7100 is held", "h2 is silent")
    assert awaited(memory, members(DOWN, DOWN, heard=None), NOW, LIMITS) == (
        "h1 has not been heard of",
    )
