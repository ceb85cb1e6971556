"""The port of rank 0's host: connections are greeted, read and judged in one thread; only what is signed gets another.

Nothing that a connection does ends the thread, costs another one or holds up others: each has so many bytes and so
long for its line, and its place among those of its address (`doors`).
"""

import contextlib
import selectors
import socket
import threading
import time
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from ..doors import Doors, family_of

MAX_LINE = 65536
CHUNK = 16384
# Connections that wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower.
QUEUE = 4096
# So many are accepted before those that are there are read again: far fewer than an address has places, so that a
# flood does not crowd out who has answered its greeting already.
ACCEPTED_AT_ONCE = 16
LINE_S = 2.0
LOOK_S = 0.1
# The longest that the accepting thread rests when the kernel gives it no connection (EMFILE).
REST_S = 0.05


class Call(NamedTuple):
    """A connection that has sent its line."""

    wire: socket.socket
    address: str
    nonce: str
    line: bytes


class Listener:
    """One port.

    Args:
        address: where it listens.
        doors: who may come in.
        greet: what a connection is told, and the nonce of that.
        judge: what to do about a line, in a thread of its own; None where it is ignored.
    """

    def __init__(
        self,
        address: Tuple[str, int],
        doors: Doors,
        greet: Callable[[], Tuple[str, bytes]],
        judge: Callable[[Call], Optional[Callable[[], None]]],
    ) -> None:
        """Listen.

        Raises:
            OSError: it cannot.
        """
        self._doors, self._greet, self._judge = doors, greet, judge
        self._reading: Dict[socket.socket, Tuple[str, str, bytearray]] = {}
        self._selector = selectors.DefaultSelector()
        self._wire = socket.socket(family_of(address[0]), socket.SOCK_STREAM)
        try:
            self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._wire.bind(address)
            self._wire.listen(QUEUE)
        except OSError:
            self._wire.close()
            raise
        self._wire.settimeout(0.0)
        self._selector.register(self._wire, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer for ever; the port is free again should that end."""
        with self._wire, self._selector:
            self._serve()

    def _serve(self) -> None:
        looked = time.monotonic()
        while True:
            for key, _ in self._selector.select(LOOK_S):
                if key.fileobj is self._wire:
                    self._accept()
                else:
                    self._hear(key.fileobj)  # type: ignore[arg-type]  # only sockets are registered
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                self._doors.hang_up_late(LINE_S)
                news = self._doors.news()
                if news:
                    print(news, flush=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                wire, address = self._wire.accept()
            except BlockingIOError:
                return
            except OSError as error:  # it has hung up already, or there is no room for it
                self._doors.count("not accepted ({})".format(error.strerror))
                time.sleep(REST_S)
                return
            if self._doors.admit(wire, address[0]):
                nonce, greeting = self._greet()
                wire.settimeout(0.0)
                self._reading[wire] = (address[0], nonce, bytearray())
                self._selector.register(wire, selectors.EVENT_READ)
                with contextlib.suppress(OSError):  # then there is nothing to read, either
                    wire.send(greeting)

    def _hear(self, wire: socket.socket) -> None:
        """Read on; a line that is whole is judged, and answered in a thread where it is worth one."""
        address, nonce, text = self._reading[wire]
        try:
            chunk = wire.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        text += chunk
        if chunk and b"\n" not in chunk and len(text) <= MAX_LINE:
            return
        self._selector.unregister(wire)
        del self._reading[wire]
        work = None
        if not chunk:
            self._doors.count("hung up without a line")
        elif len(text) > MAX_LINE:
            self._doors.count("with a line that is too long")
        else:
            line = bytes(text).partition(b"\n")[0]
            work = self._judged(Call(wire, address, nonce, line))
        if work is None or not self._begin(wire, work):
            self._end(wire)

    def _judged(self, call: Call) -> Optional[Callable[[], None]]:
        try:
            return self._judge(call)
        except Exception as error:  # noqa: BLE001 - no line may end the thread that reads all of them
            self._doors.count("not understood ({})".format(type(error).__name__))
            return None

    def _begin(self, wire: socket.socket, work: Callable[[], None]) -> bool:
        self._doors.prove(wire)
        try:
            threading.Thread(target=self._answer, args=(wire, work), daemon=True).start()
        except RuntimeError:  # the host has no thread left
            self._doors.count("without a thread to answer them")
            return False
        return True

    def _answer(self, wire: socket.socket, work: Callable[[], None]) -> None:
        """Whatever becomes of the answer, the place of the connection becomes free."""
        try:
            work()
        except OSError:
            pass  # the member has gone: it will ask again
        except Exception as error:  # noqa: BLE001 - one question must not take the watcher with it
            self._doors.count("not answered ({!r})".format(error)[:100])
        finally:
            self._end(wire)

    def _end(self, wire: socket.socket) -> None:
        self._doors.leave(wire)
        wire.close()
