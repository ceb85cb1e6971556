"""Logs of several hosts as one: order, hosts that fail, lost connections, and memory that is bounded."""

from __future__ import annotations

import json
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping

import pytest

from infra.errors import StackError
from infra.launch.logs.lines import LogLines
from infra.launch.logs.reading import WAITING_BATCHES, LogMerge, LogQuery, judge_moment, judge_query
from infra.launch.logs.stream import HostLog
from infra.remote.failures import AgentFailed, HostFailure, LostConnection, Unreachable

LOST = LostConnection("b", "the connection was lost.", "Run it again.")


class Script:
    """A host's agent by script: one list of chunks per connection; an exception in it is raised."""

    def __init__(self, name: str, *connections: Iterable[bytes | Exception] | Exception) -> None:
        self.name = name
        self.connections = list(connections)
        self.asked: list[Mapping[str, object]] = []
        self.report: Mapping[str, object] = {"processes": [{"id": f"{name}/0", "role": "decode"}]}
        self.taken = 0
        self.is_closed = threading.Event()
        self.said: list[str] = []

    def open(self, request: Mapping[str, object]) -> Script:
        self.asked.append(request)
        first = self.connections[0]
        if isinstance(first, Exception):
            del self.connections[0]
            raise first
        return self

    def chunks(self) -> Iterator[bytes]:
        packer = zlib.compressobj()
        pieces = self.connections.pop(0)
        assert not isinstance(pieces, Exception)
        for piece in pieces:
            self.taken += 1
            if isinstance(piece, Exception):
                raise piece
            yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)

    def close(self) -> None:
        self.is_closed.set()

    def log(self, *, follow: bool = False) -> HostLog:
        request = {"operation": "logs", "follow": follow}
        return HostLog(name=self.name, open_stream=self.open, request=request, say=self.said.append)


def lines(name: str, *stamps: int, is_last: bool = True) -> bytes:
    """A frame of one process: its name, a line per stamp, a cursor, the end of what was written."""
    head = {
        "num_lines": len(stamps),
        "processes": [f"{name}/0"],
        "process": 0,
        "cursor": f"{name}{stamps[-1] if stamps else 0}",
        "is_caught_up": is_last,
    }
    text = "\n".join(f"{name} {stamp}" for stamp in stamps)
    return (
        json.dumps(head).encode() + b"\n" + struct.pack(f"<{len(stamps)}Q", *stamps) + text.encode()
    )


def messages(some: LogLines) -> list[str]:
    return some.messages


def merged(*scripts: Script) -> tuple[list[str], LogMerge]:
    merge = LogMerge([script.log() for script in scripts])
    found = [message for texts in merge.texts(messages) for message in texts]
    merge.close()
    return found, merge


def test_lines_of_all_hosts_are_in_the_order_of_time() -> None:
    found, merge = merged(Script("a", [lines("a", 1, 4, 5)]), Script("b", [lines("b", 2, 3, 6)]))
    assert found == ["a 1", "b 2", "b 3", "a 4", "a 5", "b 6"]
    assert merge.failures == ()
    assert [process.id for process in merge.processes] == ["a/0", "b/0"]


def test_pieces_that_come_unevenly_are_merged_all_the_same() -> None:
    many = [lines("a", stamp, is_last=False) for stamp in range(0, 60, 2)]
    few = [lines("b", stamp, is_last=False) for stamp in range(1, 60, 20)]
    found, _ = merged(Script("a", many), Script("b", few))
    assert len(found) == 33
    assert [int(line.split()[1]) for line in found] == sorted(
        int(line.split()[1]) for line in found
    )


def test_a_clock_that_was_set_back_holds_nobody_up() -> None:
    """The lines behind the jump come when they are known, however few of them may wait."""
    back = [lines("a", *range(9000 - 100 * n, 8990 - 100 * n, -1), is_last=False) for n in range(9)]
    found, _ = merged(Script("a", back), Script("b", [lines("b", 1, 8995, 10_000)]))
    assert len(found) == 93


def test_a_host_that_is_down_does_not_hide_the_others() -> None:
    down = Script("b", Unreachable("b", "b does not answer.", "Look at it."))
    found, merge = merged(Script("a", [lines("a", 1)]), down)
    assert found == ["a 1"]
    assert [failure.host for failure in merge.failures] == ["b"]


def test_what_came_before_a_failure_is_shown() -> None:
    broken = Script("b", [lines("b", 2, 3), AgentFailed("b", "journalctl: no.", "Look.")])
    found, merge = merged(Script("a", [lines("a", 1, 9)]), broken)
    assert found == ["a 1", "b 2", "b 3", "a 9"]
    assert "journalctl" in merge.failures[0].error.what


def test_a_lost_connection_is_a_failure_when_nobody_follows() -> None:
    _, merge = merged(Script("b", [lines("b", 1), LOST]))
    assert merge.failures[0].error is LOST


def test_following_goes_on_after_the_last_cursor() -> None:
    script = Script(
        "b",
        [lines("b", 1, 2), LOST],
        Unreachable("b", "b is down.", "Look."),
        [lines("b", 3), LOST],
    )
    log = script.log(follow=True)
    found: list[str] = []
    for batch in log.batches():
        found += batch.lines.messages
        if "b 3" in found:
            log.close()
    assert found == ["b 1", "b 2", "b 3"]
    assert [request.get("after") for request in script.asked] == [None, "b2", "b2"]
    assert len(script.said) == 2


def test_following_a_host_that_never_answered_fails() -> None:
    down = Script("b", Unreachable("b", "b does not answer.", "Look at it."))
    with pytest.raises(Unreachable):
        list(down.log(follow=True).batches())


def test_a_host_that_is_ahead_waits_for_the_others() -> None:
    release = threading.Event()

    def slow() -> Iterator[bytes]:
        yield lines("b", is_last=False)
        release.wait(5)
        yield lines("b", 10_000)

    endless = Script("a", (lines("a", n, is_last=False) for n in range(1, 400)))
    merge = LogMerge([endless.log(), Script("b", slow()).log()])
    batches = merge.texts(messages)
    taken: list[int] = []

    def let_go() -> None:
        taken.append(endless.taken)
        release.set()

    threading.Timer(0.3, let_go).start()
    found = [message for texts in batches for message in texts]
    merge.close()
    assert WAITING_BATCHES <= taken[0] <= WAITING_BATCHES + 2
    assert len(found) == 400


def test_closing_ends_a_reader_that_waits() -> None:
    def endless() -> Iterator[bytes]:
        yield lines("a", 1)
        while not script.is_closed.is_set():
            time.sleep(0.01)

    script = Script("a", endless())
    merge = LogMerge([script.log(follow=True)])
    assert next(merge.texts(messages))
    merge.close()
    assert script.is_closed.is_set()


def test_a_moment_that_no_journalctl_can_read_is_the_operators_mistake() -> None:
    query = LogQuery(process=None, role=None, grep=None, lines=1, since="nonsense", follow=False)
    none = AgentFailed(
        "a", "journalctl: Failed to parse timestamp: nonsense.", "Nothing was changed."
    )
    away = Unreachable("b", "no answer.", "Look at it.")
    with pytest.raises(StackError, match=r"--since: 'nonsense' is no moment .*yesterday"):
        judge_moment(query, [HostFailure("a", none), HostFailure("b", none)])
    judge_moment(query, [HostFailure("a", none), HostFailure("b", away)])  # which is told as it is
    judge_moment(query, [])


def test_an_expression_that_is_none_is_refused_before_anybody_is_asked() -> None:
    query = LogQuery(process=None, role=None, grep="(", lines=1, since=None, follow=False)
    with pytest.raises(StackError, match="is not an expression"):
        judge_query(query)
