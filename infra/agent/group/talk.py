"""How the hosts of a group speak: members ask the host of rank 0, one line each way, one connection per question.

{"nonce", "release", "error"}
SIGNATURE {"nonce", "release", "to", "host", "boot", "at", "hold_s",
           "reports": {group: {state, epoch, adopting, fault, serves, obeys}}}
SIGNATURE {"release", "orders": {group: {epoch, phase}}}   or   {"error"}

The first is a greeting, which signs nothing and makes what follows unlike any line before; `channel` says what
signatures are over. Its `error` is what a watcher of an older release, which awaits no greeting, tells its journal.

A question may be held: the host of rank 0 answers when it has an order that the member does not obey yet, at the
latest after `hold_s`. A member has one question on its way at a time; one with news takes the held one back, as if
its answer had been lost, and asks anew. Connections are answered side by side, so that a later question may be heard
first: `boot` and `at` tell which one that is.
"""

import contextlib
import json
import os
import select
import socket
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from ..doors import Doors, own_source
from .channel import ANSWER, QUESTION, KeyFile, Wrong, new_nonce, parse, seal, signature_of, unseal
from .listener import MAX_LINE, Call, Listener
from .rules import Order, Own

EXCHANGE_S = 2.0
# The longest that a question is held, well below the age at which an order starts nothing any more.
LONGEST_HOLD_S = 1.0
BIND_AGAIN_S = 1.0
# Connections of one member at a time. It needs one; questions that were taken back may be held beside it for a second.
PER_ADDRESS = 128
UNSIGNED = "it takes signed questions alone: `fab up` brings all hosts to one release"
OTHER_RELEASE = "that host holds release {}"
CLOSED = (
    "it hung up: it has another key, another release, or does not take this address for a member's"
)
# A question that is heard later than this behind a newer one is none that was overtaken on its way.
OVERTAKEN_S = 2 * EXCHANGE_S + LONGEST_HOLD_S

Reports = Dict[str, Own]
Orders = Dict[str, Order]


class Question(NamedTuple):
    """What a member asks.

    Attributes:
        host: its name.
        boot: the boot that `at` belongs to.
        at: when its reports were taken: monotonic seconds of that boot, which go on when its watcher begins anew.
        hold_s: how long it may be held; 0.0 for an answer at once.
        reports: by group.
    """

    host: str
    boot: str
    at: float
    hold_s: float
    reports: Reports

    def is_overtaken(self, other: "Question") -> bool:
        """Whether another one of the same host, which has been heard already, was asked later."""
        return self.boot == other.boot and self.at < other.at


Answerer = Callable[[Question], Orders]


class TakenBack(Exception):
    """There was news to tell while a question was held."""


class Bell:
    """What wakes whoever waits, for the answer to a held question too: news to tell."""

    def __init__(self) -> None:
        """Silent."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Readable from when it was rung until it is silenced."""
        return self._read

    def ring(self) -> None:
        """There is news."""
        with contextlib.suppress(BlockingIOError):  # it has been rung thousands of times already
            os.write(self._write, b"!")

    def silence(self) -> bool:
        """Whether it was rung since it was silenced last."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._read, MAX_LINE))
        return False

    def wait(self, limit_s: float) -> None:
        """Until it is rung, or for so long."""
        poll = select.poll()  # a flooded watcher holds more files than select() can name
        poll.register(self._read, select.POLLIN)
        poll.poll(max(limit_s, 0.0) * 1000)


class Channel(NamedTuple):
    """What the watchers of one release have in common, and who they are.

    Args:
        key: of the hand-over; whoever speaks first waits until there is one.
        release: this host's.
        host: this one's name.
        addresses: of every host of its groups, by name.
    """

    key: KeyFile
    release: str
    host: str
    addresses: Dict[str, str]


def start_server(address: Tuple[str, int], channel: Channel, answerer: Answerer) -> None:
    """Answer members from now on, in threads of their own.

    The address may come up later than the watcher, and the port may be held: it is tried again and again, with
    a line in the journal whenever the reason changes.
    """
    threading.Thread(target=_serve, args=(address, channel, answerer), daemon=True).start()


def exchange(
    address: Tuple[str, int],
    leader: str,
    channel: Channel,
    question: Question,
    bell: Optional[Bell] = None,
) -> Orders:
    """Tell the host of rank 0 what the units are; its orders.

    Args:
        address: where it answers.
        leader: its name.
        channel: of this host.
        question: what is asked.
        bell: what takes it back; None for nothing.

    Raises:
        OSError: it does not answer in time.
        Wrong: it answers, and is not this release's.
        TakenBack: the bell was rung before the answer came.
    """
    key, source = channel.key.get(), own_source(channel.addresses[channel.host], address[0])
    asked: Dict[str, object] = {
        "nonce": new_nonce(),
        "release": channel.release,
        "to": leader,
        "host": question.host,
        "boot": question.boot,
        "at": question.at,
        "hold_s": question.hold_s,
        "reports": {
            group: {
                "state": own.state,
                "epoch": own.epoch,
                "adopting": own.adopting,
                "fault": own.fault,
                "serves": own.serves,
                "obeys": list(own.obeys),
            }
            for group, own in question.reports.items()
        },
    }
    with socket.create_connection(address, EXCHANGE_S, source) as wire:
        greeting = parse(_read_line(wire))
        if greeting.get("release") != channel.release:
            raise Wrong(OTHER_RELEASE.format(str(greeting.get("release"))[:12]))
        occasion = str(greeting.get("nonce")).encode("utf-8")
        line = seal(key, QUESTION, occasion, asked)
        wire.sendall(line)
        sealed = _read_line(wire, question.hold_s, bell)
    answer = unseal(key, ANSWER, signature_of(line), sealed)
    orders = answer.get("orders")
    if answer.get("release") != channel.release or not isinstance(orders, dict):
        raise Wrong(str(answer.get("error") or "it speaks another release's words"))
    return {
        str(group): Order(int(order["epoch"]), str(order["phase"]))
        for group, order in orders.items()
    }


def judge_line(call: Call, key: bytes, channel: Channel, doors: Doors) -> Optional[Question]:
    """The question of a signed line of a member; None for another one, which is counted and gets no answer.

    Raises:
        Wrong: this key has not signed it for this connection.
    """
    asked = unseal(key, QUESTION, call.nonce.encode("ascii"), call.line)
    if asked.get("release") != channel.release or asked.get("to") != channel.host:
        doors.count("for another release or host")
        return None
    try:
        question = Question(
            host=str(asked["host"]),
            boot=str(asked["boot"]),
            at=float(asked["at"]),
            hold_s=max(0.0, min(float(asked["hold_s"]), LONGEST_HOLD_S)),
            reports={str(group): _read_own(row) for group, row in asked["reports"].items()},
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        doors.count("without a question that can be read")
        return None
    if not doors.is_of(call.address, question.host):
        doors.count("in the name of a host at another address")
        return None
    return question


def _answer(
    call: Call, key: bytes, question: Question, channel: Channel, answerer: Answerer
) -> None:
    """Send the orders, when there are any."""
    answer = {
        group: {"epoch": order.epoch, "phase": order.phase}
        for group, order in answerer(question).items()
    }
    told: Dict[str, object] = {"release": channel.release, "orders": answer}
    call.wire.settimeout(EXCHANGE_S)
    call.wire.sendall(seal(key, ANSWER, signature_of(call.line), told))


def _read_own(row: Dict[str, Any]) -> Own:
    epoch, phase = row["obeys"]
    return Own(
        state=str(row["state"]),
        epoch=int(row["epoch"]),
        adopting=bool(row["adopting"]),
        fault=str(row["fault"]),
        serves=bool(row["serves"]),
        obeys=(int(epoch), str(phase)),
    )


def _read_line(wire: socket.socket, hold_s: float = 0.0, bell: Optional[Bell] = None) -> bytes:
    """One line within the time of an exchange, however it drips."""
    deadline, text = time.monotonic() + EXCHANGE_S + hold_s, b""
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    if bell is not None:
        poll.register(bell, select.POLLIN)
    while not text.endswith(b"\n"):
        ready = [handle for handle, _ in poll.poll(max(deadline - time.monotonic(), 0.0) * 1000)]
        if not ready:
            raise OSError("timed out")
        if wire.fileno() not in ready:
            raise TakenBack
        chunk = wire.recv(MAX_LINE)
        if len(text) > MAX_LINE or not chunk:
            raise OSError(CLOSED)
        text += chunk
    return text


def _serve(address: Tuple[str, int], channel: Channel, answerer: Answerer) -> None:
    channel.key.get()
    doors = Doors(channel.addresses, PER_ADDRESS)
    doors.follow_names()
    said: Optional[str] = None

    told = json.dumps({"release": channel.release, "error": UNSIGNED})[1:]

    def greet() -> Tuple[str, bytes]:
        nonce = new_nonce()
        return nonce, '{{"nonce": "{}", {}\n'.format(nonce, told).encode("ascii")

    def judge(call: Call) -> Optional[Callable[[], None]]:
        for read in (channel.key.get, channel.key.again):
            with contextlib.suppress(Wrong):
                key = read()
                question = judge_line(call, key, channel, doors)
                return question and partial(_answer, call, key, question, channel, answerer)
        doors.count("not signed for their connection")
        return None

    while True:
        try:
            listener = Listener(address, doors, greet, judge)
            print("listening on {}:{}".format(*address), flush=True)
            listener.serve()
        except OSError as error:
            if str(error) != said:
                print(
                    "cannot listen on {}:{}: {}".format(address[0], address[1], error), flush=True
                )
                said = str(error)
            time.sleep(BIND_AGAIN_S)
