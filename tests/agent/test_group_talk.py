"""How hosts of a group speak: one line each way, and no order for another release's watcher."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from infra.agent.group.rules import PARTIAL, RUN, Order, Own
from infra.agent.group.talk import (
    LONGEST_HOLD_S,
    Bell,
    Orders,
    Question,
    TakenBack,
    Wrong,
    answer_line,
    exchange,
    start_server,
)

OWN = Own(PARTIAL, 4, fault="h1/0 ended", serves=True, obeys=(4, RUN))
ASKED = Question("h1", "this boot", 7.25, 0.0, {"decode/0": OWN})


def free_port() -> int:
    with socket.socket() as wire:
        wire.bind(("127.0.0.1", 0))
        return int(wire.getsockname()[1])


def ask_soon(address: tuple[str, int], release: str) -> Orders:
    """As a member does: until the other side listens."""
    for _ in range(100):
        try:
            return exchange(address, release, ASKED)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError


def test_a_member_tells_what_it_is_and_gets_its_orders() -> None:
    told: list[Question] = []

    def answer(question: Question) -> Orders:
        told.append(question)
        return {"decode/0": Order(5, RUN)}

    address = ("127.0.0.1", free_port())
    start_server(address, "this release", answer)
    assert ask_soon(address, "this release") == {"decode/0": Order(5, RUN)}
    assert told == [ASKED]
    with pytest.raises(Wrong, match="this host holds release this relea"):
        exchange(address, "yesterday's", ASKED)
    assert len(told) == 1  # yesterday's report was not taken


@pytest.mark.parametrize(
    "line", [b"", b"[]\n", b"{}\n", b'{"reports": 3}\n', b"GET / HTTP/1.1\r\n", b"\xff\n"]
)
def test_what_is_no_question_gets_no_order(line: bytes) -> None:
    def answer(_question: Question) -> Orders:
        raise AssertionError

    assert "error" in json.loads(answer_line(line, "r", answer))


def test_another_releases_words_are_told_by_their_release() -> None:
    line = b'{"release": "another", "host": "h1", "hold_s": 0.0, "reports": {}}'
    assert b"this host holds release this" in answer_line(line, "this", lambda _: {})


def test_a_side_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        begun = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            exchange(deaf.getsockname(), "r", ASKED)
        assert time.monotonic() - begun < 4.0


def test_a_held_question_is_answered_when_there_is_an_order() -> None:
    decided, held = threading.Event(), []

    def answer(question: Question) -> Orders:
        held.append(question.hold_s)
        decided.wait(question.hold_s)
        return {"decode/0": Order(5, RUN)}

    address = ("127.0.0.1", free_port())
    start_server(address, "r", answer)
    ask_soon(address, "r")
    threading.Timer(0.1, decided.set).start()
    begun = time.monotonic()
    orders = exchange(address, "r", ASKED._replace(hold_s=60.0), Bell())
    assert orders == {"decode/0": Order(5, RUN)}
    assert time.monotonic() - begun < 0.9 * LONGEST_HOLD_S
    assert held == [0.0, LONGEST_HOLD_S]  # no member can have it held for longer


def test_news_takes_a_held_question_back() -> None:
    def answer(question: Question) -> Orders:
        time.sleep(question.hold_s)
        return {}

    address = ("127.0.0.1", free_port())
    start_server(address, "r", answer)
    ask_soon(address, "r")
    bell = Bell()
    threading.Timer(0.05, bell.ring).start()
    begun = time.monotonic()
    with pytest.raises(TakenBack):
        exchange(address, "r", ASKED._replace(hold_s=1.0), bell)
    assert time.monotonic() - begun < 0.5
    assert bell.silence()
    assert not bell.silence()
    assert exchange(address, "r", ASKED) == {}
