"""How the hosts of a group speak: members ask the host of rank 0, one line each way, one connection per question.

{"release", "host", "boot", "at", "hold_s", "reports": {group: {state, epoch, adopting, fault, serves, obeys}}}
{"release", "orders": {group: {epoch, phase}}}   or   {"error"}

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
import socketserver
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .rules import Order, Own

MAX_LINE = 65536
EXCHANGE_S = 2.0
# The longest that a question is held, well below the age at which an order starts nothing any more.
LONGEST_HOLD_S = 1.0
BIND_AGAIN_S = 1.0
SERVER_QUEUE = 128
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


class Wrong(Exception):
    """The other side is not one of this release's watchers."""


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
        select.select([self._read], [], [], max(limit_s, 0.0))


def start_server(address: Tuple[str, int], release: str, answerer: Answerer) -> None:
    """Answer members from now on, in threads of their own.

    The address may come up later than the watcher, and the port may be held: it is tried again and again, with
    a line in the journal whenever the reason changes.
    """
    threading.Thread(target=_serve, args=(address, release, answerer), daemon=True).start()


def exchange(
    address: Tuple[str, int],
    release: str,
    question: Question,
    bell: Optional[Bell] = None,
) -> Orders:
    """Tell the host of rank 0 what the units are; its orders.

    Args:
        address: where it answers.
        release: this host's.
        question: what is asked.
        bell: what takes it back; None for nothing.

    Raises:
        OSError: it does not answer in time.
        Wrong: it answers, and is not this release's.
        TakenBack: the bell was rung before the answer came.
    """
    asked: Dict[str, object] = {
        "release": release,
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
    with socket.create_connection(address, EXCHANGE_S) as wire:
        wire.sendall(_line(asked))
        answer = _parse(_read_line(wire, question.hold_s, bell))
    orders = answer.get("orders")
    if answer.get("release") != release or not isinstance(orders, dict):
        raise Wrong(str(answer.get("error") or "it speaks another release's words"))
    return {
        str(group): Order(int(order["epoch"]), str(order["phase"]))
        for group, order in orders.items()
    }


def answer_line(line: bytes, release: str, answerer: Answerer) -> bytes:
    """The answer to a member's line; a member of another release gets no order."""
    answer: Dict[str, object]
    try:
        asked = _parse(line)
        if asked.get("release") != release:  # whose words may be others, too
            return _line({"error": "this host holds release {}".format(release[:12])})
        question = Question(
            host=str(asked["host"]),
            boot=str(asked["boot"]),
            at=float(asked["at"]),
            hold_s=min(float(asked["hold_s"]), LONGEST_HOLD_S),
            reports={str(group): _read_own(row) for group, row in asked["reports"].items()},
        )
    except (Wrong, KeyError, TypeError, ValueError, AttributeError) as error:
        return _line({"error": "not a member's question: {!r}".format(error)})
    orders = answerer(question)
    answer = {
        group: {"epoch": order.epoch, "phase": order.phase} for group, order in orders.items()
    }
    return _line({"release": release, "orders": answer})


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


def _line(document: Dict[str, object]) -> bytes:
    return json.dumps(document).encode("utf-8") + b"\n"


def _parse(line: bytes) -> Dict[str, Any]:
    document = json.loads(line.decode("utf-8"))
    if not isinstance(document, dict):
        raise Wrong("no map")
    return document


def _read_line(wire: socket.socket, hold_s: float = 0.0, bell: Optional[Bell] = None) -> bytes:
    """One line within the time of an exchange, however it drips."""
    deadline, text = time.monotonic() + EXCHANGE_S + hold_s, b""
    watched: List[Any] = [wire] if bell is None else [wire, bell]
    while not text.endswith(b"\n"):
        ready = select.select(watched, [], [], max(deadline - time.monotonic(), 0.0))[0]
        if not ready:
            raise OSError("timed out")
        if wire not in ready:
            raise TakenBack
        chunk = wire.recv(MAX_LINE)
        if not chunk or len(text) > MAX_LINE:
            raise OSError("the other side ended in the middle of a line")
        text += chunk
    return text


def _serve(address: Tuple[str, int], release: str, answerer: Answerer) -> None:
    class Handler(socketserver.BaseRequestHandler):
        """One question."""

        def handle(self) -> None:
            try:
                line = _read_line(self.request)
                self.request.sendall(answer_line(line, release, answerer))
            except OSError:
                pass  # the member has gone: it will ask again

    class Server(socketserver.ThreadingTCPServer):
        """Questions in threads: a member that hangs in the middle holds up nobody."""

        allow_reuse_address = True
        daemon_threads = True
        request_queue_size = SERVER_QUEUE

    said: Optional[str] = None
    while True:
        try:
            with Server(address, Handler) as server:
                print("listening on {}:{}".format(*address), flush=True)
                server.serve_forever()
        except OSError as error:
            if str(error) != said:
                print(
                    "cannot listen on {}:{}: {}".format(address[0], address[1], error), flush=True
                )
                said = str(error)
            time.sleep(BIND_AGAIN_S)
