"""How hosts of a group speak: signed lines, and no order for anybody else than a member of this release."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.doors import STRANGER, Doors
from infra.agent.group.channel import (
    ANSWER,
    QUESTION,
    KeyFile,
    Wrong,
    hold_key,
    key_path,
    new_nonce,
    parse,
    read_key,
    seal,
    signature_of,
)
from infra.agent.group.listener import MAX_LINE, Call
from infra.agent.group.rules import PARTIAL, RUN, Order, Own
from infra.agent.group.talk import (
    LONGEST_HOLD_S,
    Bell,
    Channel,
    Orders,
    Question,
    TakenBack,
    exchange,
    judge_line,
    start_server,
)
from infra.agent.host import Host, Refused
from tests.ports import free_port

OWN = Own(PARTIAL, 4, fault="h1/0 ended", serves=True, obeys=(4, RUN))
ASKED = Question("h1", "this boot", 7.25, 0.0, {"decode/0": OWN})
KEY, OTHER_KEY = "ab" * 32, "cd" * 32
HERE = "127.0.0.1"

MakeChannel = Callable[..., Channel]


@pytest.fixture
def channel(tmp_path: Path) -> MakeChannel:
    """What the watcher of a host is told; each key lies below a root of its own."""

    def make(host: str = "h0", release: str = "this release", key: str = KEY) -> Channel:
        root = Host(str(tmp_path / f"{host}-{key[:2]}"))
        hold_key(root, "s", key)
        return Channel(KeyFile(root, "s"), release, host, {"h0": HERE, "h1": HERE})

    return make


def ask_soon(address: tuple[str, int], channel: Channel, to: str = "h0") -> Orders:
    """As a member does: until the other side listens."""
    for _ in range(100):
        try:
            return exchange(address, to, channel, ASKED)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError


def never(_question: Question) -> Orders:
    raise AssertionError


def test_a_member_tells_what_it_is_and_gets_its_orders(channel: MakeChannel) -> None:
    told: list[Question] = []

    def answer(question: Question) -> Orders:
        told.append(question)
        return {"decode/0": Order(5, RUN)}

    address = (HERE, free_port())
    start_server(address, channel(), answer)
    assert ask_soon(address, channel("h1")) == {"decode/0": Order(5, RUN)}
    assert told == [ASKED]
    with pytest.raises(Wrong, match="that host holds release this relea"):
        exchange(address, "h0", channel("h1", release="yesterday's"), ASKED)
    assert len(told) == 1  # yesterday's report was not taken


def test_who_has_another_key_gets_no_answer_and_is_told_why(channel: MakeChannel) -> None:
    address = (HERE, free_port())
    start_server(address, channel(), lambda _: {})
    ask_soon(address, channel("h1"))
    with pytest.raises(OSError, match="another key"):
        exchange(address, "h0", channel("h1", key=OTHER_KEY), ASKED)


def test_a_key_that_is_changed_under_a_watcher_is_taken_on(
    channel: MakeChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.agent.group.channel.LOOK_AGAIN_S", 0.0)
    address, leader = (HERE, free_port()), channel()
    start_server(address, leader, lambda _: {})
    ask_soon(address, channel("h1"))
    hold_key(leader.key._host, "s", OTHER_KEY)
    assert exchange(address, "h0", channel("h1", key=OTHER_KEY), ASKED) == {}


NONCE = "0123456789abcdef"


def said(**changes: object) -> dict[str, object]:
    """A member's question as it is signed."""
    own = {**OWN._asdict(), "obeys": list(OWN.obeys)}
    told = {"nonce": new_nonce(), "release": "this release", "to": "h0", "host": "h1"}
    return {
        **told,
        "boot": "b",
        "at": 1.0,
        "hold_s": 0.0,
        "reports": {"decode/0": own},
        **changes,
    }


def judged(channel: Channel, line: bytes, address: str = HERE) -> tuple[Question | None, str]:
    """What a leader makes of a line on a connection that was greeted with `NONCE`; what it counted."""
    doors = Doors(channel.addresses, 8)
    with socket.socket() as wire:
        try:
            call = Call(wire, address, NONCE, line.rstrip(b"\n"))
            question = judge_line(call, channel.key.get(), channel, doors)
        except Wrong:
            return None, "not signed"
    return question, ", ".join(doors.ignored)


def test_what_is_signed_for_its_connection_is_heard(channel: MakeChannel) -> None:
    line = seal(bytes.fromhex(KEY), QUESTION, NONCE.encode(), said())
    question, counted = judged(channel(), line)
    assert question is not None
    assert (question.host, question.reports, counted) == ("h1", {"decode/0": OWN}, "")


FORGED = {
    "the release hash alone, which everybody can read": json.dumps(said()).encode(),
    "another key": seal(bytes.fromhex(OTHER_KEY), QUESTION, NONCE.encode(), said()),
    "an old line, recorded on another connection": seal(
        bytes.fromhex(KEY), QUESTION, b"an older nonce", said()
    ),
    "an answer, sent back to where it came from": seal(
        bytes.fromhex(KEY), ANSWER, NONCE.encode(), said()
    ),
    "a signature of nothing": b"0" * 64 + b" {}",
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r",
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_a_forged_line_is_ignored(channel: MakeChannel, line: bytes) -> None:
    assert judged(channel(), line) == (None, "not signed")


def test_a_line_that_was_changed_on_its_way_is_ignored(channel: MakeChannel) -> None:
    line = seal(bytes.fromhex(KEY), QUESTION, NONCE.encode(), said())
    assert judged(channel(), line.replace(b'"h1"', b'"h2"'))[0] is None


MISDIRECTED: dict[str, tuple[dict[str, object], str]] = {
    "another host's": ({"to": "h7"}, "for another release or host"),
    "yesterday's": ({"release": "yesterday's"}, "for another release or host"),
    "no member's": ({"host": "h7"}, "in the name of a host at another address"),
    "no question": ({"reports": 3}, "without a question that can be read"),
    "no epoch": ({"reports": {"g": {"epoch": "x"}}}, "without a question that can be read"),
    "no time": ({"at": "soon"}, "without a question that can be read"),
    "endless": (
        {"reports": {"g": {"obeys": [float("inf"), ""]}}},
        "without a question that can be read",
    ),
}


@pytest.mark.parametrize(("changes", "counted"), MISDIRECTED.values(), ids=MISDIRECTED)
def test_what_is_signed_and_not_for_this_host_is_ignored_and_counted(
    channel: MakeChannel, changes: dict[str, object], counted: str
) -> None:
    line = seal(bytes.fromhex(KEY), QUESTION, NONCE.encode(), said(**changes))
    assert judged(channel(), line) == (None, counted)


def test_a_member_cannot_speak_in_another_members_name(channel: MakeChannel) -> None:
    leader = channel()._replace(addresses={"h0": HERE, "h1": "127.0.0.5", "h2": "127.0.0.6"})
    line = seal(bytes.fromhex(KEY), QUESTION, NONCE.encode(), said())
    assert judged(leader, line, "127.0.0.6")[0] is None
    assert judged(leader, line, "127.0.0.5")[0] is not None


def scripted_leader(greeting: bytes, answers: Callable[[bytes], bytes]) -> tuple[str, int]:
    """Somebody who has taken a leader's port: one connection."""
    wire = socket.socket()
    wire.bind((HERE, 0))
    wire.listen()

    def serve() -> None:
        with wire, wire.accept()[0] as member:
            member.sendall(greeting)
            member.sendall(answers(member.recv(MAX_LINE)))

    threading.Thread(target=serve, daemon=True).start()
    address: tuple[str, int] = wire.getsockname()
    return address


ORDERS: dict[str, object] = {
    "release": "this release",
    "orders": {"decode/0": {"epoch": 9, "phase": "stop"}},
}
NOT_ORDERS: dict[str, Callable[[bytes], bytes]] = {
    "unsigned": lambda _: json.dumps(ORDERS).encode() + b"\n",
    "of another key": lambda line: seal(
        bytes.fromhex(OTHER_KEY), ANSWER, signature_of(line), ORDERS
    ),
    "to an older question": lambda _: seal(bytes.fromhex(KEY), ANSWER, b"0" * 64, ORDERS),
    "the question itself": lambda line: line,
}


@pytest.mark.parametrize("answers", NOT_ORDERS.values(), ids=NOT_ORDERS)
def test_no_order_is_taken_from_who_only_has_the_port(
    channel: MakeChannel, answers: Callable[[bytes], bytes]
) -> None:
    greeting = json.dumps({"nonce": NONCE, "release": "this release"}).encode() + b"\n"
    with pytest.raises(Wrong, match="not signed with this host's key"):
        exchange(scripted_leader(greeting, answers), "h0", channel("h1"), ASKED)


def test_a_watcher_of_an_older_release_reads_what_to_do(channel: MakeChannel) -> None:
    """It sends its own line at once, and takes the first one that comes for the answer."""
    address = (HERE, free_port())
    start_server(address, channel(), never)
    for _ in range(100):
        try:
            with socket.create_connection(address, 2.0) as wire:
                wire.sendall(b'{"release": "older", "reports": {}}\n')
                answer = parse(wire.makefile("rb").readline())
                break
        except ConnectionRefusedError:
            time.sleep(0.02)
    assert "`fab up` brings all hosts to one release" in str(answer["error"])
    assert "orders" not in answer


def test_a_side_that_does_not_answer_is_given_up_in_time(channel: MakeChannel) -> None:
    with socket.socket() as deaf:
        deaf.bind((HERE, 0))
        deaf.listen()
        begun = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            exchange(deaf.getsockname(), "h0", channel("h1"), ASKED)
        assert time.monotonic() - begun < 4.0


def test_a_held_question_is_answered_when_there_is_an_order(channel: MakeChannel) -> None:
    decided, held = threading.Event(), []

    def answer(question: Question) -> Orders:
        held.append(question.hold_s)
        decided.wait(question.hold_s)
        return {"decode/0": Order(5, RUN)}

    address, member = (HERE, free_port()), channel("h1")
    start_server(address, channel(), answer)
    ask_soon(address, member)
    threading.Timer(0.1, decided.set).start()
    begun = time.monotonic()
    orders = exchange(address, "h0", member, ASKED._replace(hold_s=60.0), Bell())
    assert orders == {"decode/0": Order(5, RUN)}
    assert time.monotonic() - begun < 0.9 * LONGEST_HOLD_S
    assert held == [0.0, LONGEST_HOLD_S]  # no member can have it held for longer


def test_news_takes_a_held_question_back(channel: MakeChannel) -> None:
    def answer(question: Question) -> Orders:
        time.sleep(question.hold_s)
        return {}

    address, member = (HERE, free_port()), channel("h1")
    start_server(address, channel(), answer)
    ask_soon(address, member)
    bell = Bell()
    threading.Timer(0.05, bell.ring).start()
    begun = time.monotonic()
    with pytest.raises(TakenBack):
        exchange(address, "h0", member, ASKED._replace(hold_s=1.0), bell)
    assert time.monotonic() - begun < 0.5
    assert bell.silence()
    assert not bell.silence()
    assert exchange(address, "h0", member, ASKED) == {}


def test_an_answer_that_fails_costs_one_question_and_no_more(channel: MakeChannel) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> Orders:
        asked.append(question)
        if len(asked) == 1:
            raise ZeroDivisionError
        return {}

    address, member = (HERE, free_port()), channel("h1")
    start_server(address, channel(), answer)
    with pytest.raises(OSError, match="hung up"):
        ask_soon(address, member)
    assert exchange(address, "h0", member, ASKED) == {}


def test_a_stranger_is_closed_before_anything_is_read(channel: MakeChannel) -> None:
    address, member = (HERE, free_port()), channel("h1")
    start_server(address, channel(), lambda _: {})
    ask_soon(address, member)

    heard = b""
    with (
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
        socket.create_connection(address, 2.0, ("127.0.0.9", 0)) as wire,
    ):
        heard = wire.recv(100)
    assert heard == b""  # a member is greeted


def test_doors_count_strangers_and_name_the_last() -> None:
    doors = Doors({"h1": HERE}, 4)
    one, other = socket.socketpair()
    with one, other:
        assert not doors.admit(one, "192.0.2.9")
        assert doors.ignored == {STRANGER: 1}
        assert "192.0.2.9" in doors.news()
        assert doors.news() == ""  # it was said a moment ago


def test_a_key_that_others_can_read_or_write_is_none(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    with pytest.raises(Refused, match="No such file"):
        read_key(host, "s")
    hold_key(host, "s", KEY)
    assert read_key(host, "s") == bytes.fromhex(KEY)
    place = Path(host.path(key_path("s")))
    assert place.stat().st_mode & 0o777 == 0o600
    place.chmod(0o640)
    with pytest.raises(Refused, match="not root's alone"):
        read_key(host, "s")
    place.chmod(0o600)
    place.write_text("words\n")
    with pytest.raises(Refused, match="holds no key"):
        read_key(host, "s")
    place.rename(place.with_name("elsewhere"))
    place.symlink_to("elsewhere")
    with pytest.raises(Refused, match="symbolic links"):
        read_key(host, "s")


@pytest.mark.parametrize("key", [None, "", "ab", "AB" * 32, KEY + "\n", 7])
def test_a_hand_over_without_a_key_is_refused(tmp_path: Path, key: object) -> None:
    with pytest.raises(Refused, match="without the key"):
        hold_key(Host(str(tmp_path)), "s", key)


def test_a_watcher_without_a_key_says_so_and_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.agent.group.channel.LOOK_AGAIN_S", 0.01)
    host, got = Host(str(tmp_path)), []
    waiting = threading.Thread(target=lambda: got.append(KeyFile(host, "s").get()), daemon=True)
    waiting.start()
    said_so = ""
    while "fab up" not in said_so:
        said_so += capsys.readouterr().out
        time.sleep(0.01)
    assert key_path("s") in said_so
    hold_key(host, "s", KEY)
    waiting.join(5)
    assert got == [bytes.fromhex(KEY)]
