"""The operation `reach`: listens on ports that peers will dial, and dials theirs, at the same time.

A dial that speaks says who it is, is told the listener's clock, and where it is asked to sends a load
that needs full-sized packets. Hosts begin some time apart, so a refused dial is tried until the limit.
"""

import contextlib
import socket
import threading
import time
from typing import Dict, List, Optional, Set, Tuple

from ..at_once import each_at_once
from ..host import Host
from .wall_clock import WallClock, read_wall_clock

LOAD_BYTES = 131072
DEFAULT_S = 6.0
CONNECT_S = 2.0
TALK_S = 3.0
PAUSE_S = 0.05
LOOK_S = 0.2
MAX_SILENT = 2
MAX_PARALLEL = 64
BACKLOG = 128
MAX_LINE = 256
GREETING = "moe-infra-reach"
# linux/in.h and linux/in6.h: the path's MTU as the kernel knows it; Python has no names for them.
IP_MTU = 14
IPV6_MTU = 24

Row = Dict[str, object]


class Listener:
    """The ports of this host, while peers dial them."""

    def __init__(self, name: str, token: str, clock: WallClock) -> None:
        """Listen on nothing yet."""
        self.name = name
        self.token = token
        self.clock = clock
        self.guard = threading.Lock()
        self.arrived: Set[Tuple[int, str]] = set()
        self.sockets: List[socket.socket] = []

    def open(self, address: str, port: int) -> Optional[str]:
        """Listen on a port; why that cannot be done, None when it can."""
        try:
            channel = _bound(address, port)
        except OSError as error:
            return error.strerror or str(error)
        channel.listen(BACKLOG)
        channel.settimeout(LOOK_S)
        self.sockets.append(channel)
        threading.Thread(target=self._accept, args=(channel, port), daemon=True).start()
        return None

    def close(self) -> None:
        """Stop listening."""
        for channel in self.sockets:
            channel.close()

    def _accept(self, channel: socket.socket, port: int) -> None:
        while channel.fileno() >= 0:
            try:
                peer, _ = channel.accept()
            except OSError:  # nobody came, or it was closed
                continue
            threading.Thread(target=self._talk, args=(peer, port), daemon=True).start()

    def _talk(self, peer: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError, ValueError), contextlib.closing(peer):
            peer.settimeout(TALK_S)
            token, caller, load = _line(peer).split()
            if token != self.token:
                return
            words = (GREETING, self.name, self.clock.now(), self.clock.error_s)
            peer.sendall("{} {} {:.6f} {:.6f}\n".format(*words).encode("utf-8"))
            if int(load):
                _take(peer, int(load))
                peer.sendall(b"whole\n")
            with self.guard:
                self.arrived.add((port, caller))


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """What became of every listener and every dial."""
    begun = time.monotonic()
    deadline = begun + float(str(request.get("limit_s") or DEFAULT_S))
    listener = Listener(str(request["name"]), str(request["token"]), read_wall_clock(host))
    asked = _rows(request, "listen")
    address = str(request.get("address") or "")
    opened = [listener.open(address, int(str(one["port"]))) for one in asked]
    try:
        dials = _rows(request, "dial")
        results = each_at_once(lambda one: _dial(one, listener, deadline), dials, MAX_PARALLEL)
        _await_callers(listener, _expected(asked, opened), deadline)
    finally:
        listener.close()
    rows = [{"port": one["port"], "error": error} for one, error in zip(asked, opened)]
    return {
        "schema_version": 1,
        "listen": rows,
        "dials": results,
        "seconds": round(time.monotonic() - begun, 3),
    }


def _expected(asked: List[Row], opened: List[Optional[str]]) -> Set[Tuple[int, str]]:
    """Who will dial which port that is open."""
    found: Set[Tuple[int, str]] = set()
    for one, error in zip(asked, opened):
        callers = one.get("callers")
        if error is None and isinstance(callers, list):
            found |= {(int(str(one["port"])), str(caller)) for caller in callers}
    return found


def _await_callers(listener: Listener, expected: Set[Tuple[int, str]], deadline: float) -> None:
    while time.monotonic() < deadline:
        with listener.guard:
            if expected <= listener.arrived:
                return
        time.sleep(PAUSE_S)


def _dial(asked: Row, listener: Listener, deadline: float) -> Row:
    """One dial, repeated until it succeeds or the time is over."""
    row: Row = {"to": asked["to"], "port": asked["port"], "ok": False, "error": "no time left"}
    num_silent = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return row
        begun = time.monotonic()
        try:
            row.update(_once(asked, listener, min(CONNECT_S, left)))
        except OSError as error:
            num_silent += isinstance(error, socket.timeout)
            row["error"] = error.strerror or str(error) or type(error).__name__
        row["seconds"] = round(time.monotonic() - begun, 4)
        # a host that only lacks the listener refuses at once: silence is somebody dropping packets
        if row["ok"] or row.get("connected") or num_silent >= MAX_SILENT:
            return row
        time.sleep(PAUSE_S)


def _once(asked: Row, listener: Listener, timeout_s: float) -> Row:
    where = (str(asked["address"]), int(str(asked["port"])))
    with contextlib.closing(socket.create_connection(where, timeout=timeout_s)) as channel:
        row: Row = {"ok": True, "error": None, "connected": True, "path_mtu": _path_mtu(channel)}
        if not asked.get("speaks"):
            return row
        load = LOAD_BYTES if asked.get("loads") else 0
        try:
            row.update(_speak(channel, listener, load))
        except (OSError, ValueError) as error:
            row.update(ok=False, error="connected, but {}".format(error))
        return row


def _speak(channel: socket.socket, listener: Listener, load: int) -> Row:
    channel.settimeout(TALK_S)
    sent = listener.clock.now()
    words = "{} {} {}\n".format(listener.token, listener.name, load)
    channel.sendall(words.encode("utf-8"))
    told = _line(channel).split()
    heard = listener.clock.now()
    if told[:1] != [GREETING]:
        raise ValueError("somebody else answered")
    _, name, clock, their_error = told
    row: Row = {"name": name, "ahead_s": round(float(clock) - (sent + heard) / 2, 6)}
    errors = (heard - sent) / 2, listener.clock.error_s, float(their_error)
    row["error_s"] = round(sum(errors), 6)
    if load:
        try:
            channel.sendall(bytes(load))
            row["whole"] = _line(channel) == "whole"
        except OSError:
            row["whole"] = False
    return row


def _bound(address: str, port: int) -> socket.socket:
    """A socket on that address, or on all where the host has not got it (a translated address)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for name in (address, ""):
        channel = socket.socket(family, socket.SOCK_STREAM)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            channel.bind((name, port))
        except OSError as error:
            channel.close()
            if name and error.errno == 99:  # noqa: PLR2004 - EADDRNOTAVAIL
                continue
            raise
        return channel
    raise OSError("unreachable")


def _path_mtu(channel: socket.socket) -> Optional[int]:
    is_6 = channel.family == socket.AF_INET6
    level, name = (socket.IPPROTO_IPV6, IPV6_MTU) if is_6 else (socket.IPPROTO_IP, IP_MTU)
    try:
        return channel.getsockopt(level, name)
    except OSError:
        return None


def _line(channel: socket.socket) -> str:
    """One line, read byte by byte so that nothing behind it is taken.

    Raises:
        ValueError: the other side hung up before its end.
    """
    text = b""
    while not text.endswith(b"\n") and len(text) < MAX_LINE:
        byte = channel.recv(1)
        if not byte:
            raise ValueError("the other side hung up")
        text += byte
    return text.decode("utf-8", "replace").strip()


def _take(channel: socket.socket, num_bytes: int) -> None:
    left = num_bytes
    while left > 0:
        part = channel.recv(min(left, 65536))
        if not part:
            raise ValueError("the other side hung up")
        left -= len(part)


def _rows(request: Row, key: str) -> List[Row]:
    listed = request.get(key)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
