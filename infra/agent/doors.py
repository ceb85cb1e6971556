"""Who may be connected to a port of ours: hosts that are known, so many connections of each, and nobody else.

A stranger is closed before anything is read. A connection that has proven nothing keeps its place only until others
of its address want it: a flood takes places from its own address alone, and a host that is meant comes in at one of
its next tries.
"""

import collections
import contextlib
import random
import socket
import struct
import threading
import time
from typing import Counter, Dict, Optional, Set, Tuple

# Connections of all addresses together, below `LimitNOFILE` of the units that listen (4096) with 250 hosts, too.
TOTAL = 1024
LEAST_PER_ADDRESS = 16
# A close that leaves nothing behind in the kernel: connections of strangers must not pile up as TIME_WAIT.
AT_ONCE = struct.pack("ii", 1, 0)
# How often known hosts that have names are looked up again, and how often the journal is told of what was ignored.
RESOLVE_S = 60.0
TELL_S = 60.0
STRANGER, CROWDED, FULL = "from no host of ours", "crowded out", "over the limit of their address"


class Doors:
    """The connections to one port.

    Args:
        hosts: the address, or its name, of every host that may connect, by what the host is called.
        per_address: connections of one address at a time; fewer where there are very many hosts.
    """

    def __init__(self, hosts: Dict[str, str], per_address: int) -> None:
        """Know the hosts; nobody is connected."""
        self._hosts = hosts
        self._known: Dict[str, Set[str]] = {name: _addresses(hosts[name]) for name in hosts}
        share = TOTAL // max(len(self._known), 1)
        self._limit = max(min(per_address, share), LEAST_PER_ADDRESS)
        self._guard = threading.Lock()
        # By address: since when each connection is there; None once it has proven itself.
        self._inside: Dict[str, Dict[socket.socket, Optional[float]]] = {}
        self._ignored: Counter[str] = collections.Counter()
        self._told: Counter[str] = collections.Counter()
        self._told_at = 0.0
        self._stranger = ""

    def is_of(self, address: str, name: str) -> bool:
        """Whether a source address is one of a known host's."""
        return _plain(address) in self._known.get(name, ())

    def admit(self, wire: socket.socket, address: str) -> bool:
        """Let a connection in, or close it; the place that it needs may be taken from one that has proven nothing."""
        source = _plain(address)
        with self._guard:
            own = self._inside.setdefault(source, {}) if self._is_known(source) else None
            if own is None:
                self._ignored[STRANGER] += 1
                self._stranger = source
            elif len(own) >= self._limit:
                # The newest may be the one that is meant, and so may any other: chance gives each of them its turn.
                waiting = [one for one, since in own.items() if since is not None]
                self._ignored[CROWDED if waiting else FULL] += 1
                if waiting:
                    victim = random.choice(waiting)  # noqa: S311 - no secret hangs on it
                    del own[victim]
                    hang_up(victim)
                else:
                    own = None
            if own is not None:
                own[wire] = time.monotonic()
        if own is None:
            hang_up(wire)
            wire.close()
        return own is not None

    def prove(self, wire: socket.socket) -> None:
        """A connection has shown that it is one of ours: its place is its own."""
        with self._guard:
            for own in self._inside.values():
                if wire in own:
                    own[wire] = None

    def hang_up_late(self, limit_s: float) -> None:
        """End the connections that have proven nothing for so long."""
        before = time.monotonic() - limit_s
        with self._guard:
            late = [
                wire
                for own in self._inside.values()
                for wire, since in own.items()
                if since is not None and since < before
            ]
            self._ignored.update({"silent for too long": len(late)} if late else {})
        for wire in late:
            hang_up(wire)

    def leave(self, wire: socket.socket) -> None:
        """A connection is over."""
        with self._guard:
            for own in self._inside.values():
                own.pop(wire, None)

    def count(self, reason: str) -> None:
        """Note something that was ignored."""
        with self._guard:
            self._ignored[reason] += 1

    @property
    def ignored(self) -> Dict[str, int]:
        """How much was ignored since the beginning, by reason."""
        with self._guard:
            return dict(self._ignored)

    def news(self) -> str:
        """What was ignored since the last news, in words; "" for nothing, and most of the time."""
        now = time.monotonic()
        with self._guard:
            more = self._ignored - self._told
            if not more or (self._told_at and now - self._told_at < TELL_S):
                return ""
            self._told, self._told_at = collections.Counter(self._ignored), now
            parts = ["{} {}".format(count, reason) for reason, count in more.most_common()]
        last = " (the last one: {})".format(self._stranger) if STRANGER in more else ""
        return "connections ignored: {}{}".format(", ".join(parts), last)

    def follow_names(self) -> None:
        """Look hosts that are known by names up again and again, in a thread of its own."""
        if any({address} != self._known[name] for name, address in self._hosts.items()):
            threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(RESOLVE_S)
            for name, address in self._hosts.items():
                self._known[name] = _addresses(address) or self._known[name]

    def _is_known(self, source: str) -> bool:
        return any(source in found for found in self._known.values())


def hang_up(wire: socket.socket) -> None:
    """End a connection; whoever reads it finds its end, and closes it."""
    with contextlib.suppress(OSError):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def own_source(own: str, other: str) -> Optional[Tuple[str, int]]:
    """Where to dial from, so that the other side sees the address that it knows; None where this host lacks it."""
    try:
        with socket.socket(family_of(own)) as tried:
            tried.bind((own, 0))
    except OSError:
        return None
    return (own, 0) if family_of(own) == family_of(other) else None


def family_of(address: str) -> socket.AddressFamily:
    """The family of an address; a name counts as IPv4's."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _addresses(name: str) -> Set[str]:
    """The numeric addresses of a host; none while nobody knows its name."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {_plain(str(row[4][0])) for row in found}


def _plain(address: str) -> str:
    """An address without its zone, and an IPv4 address that came in by IPv6 as itself."""
    bare = address.partition("%")[0]
    return bare[len("::ffff:") :] if bare.startswith("::ffff:") and "." in bare else bare
