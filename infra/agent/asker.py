"""Whether somebody still waits for an answer, and the end of all that was started when nobody does.

Whoever waits writes a line break to standard input every few seconds. With each of them the lease that came with the
request is renewed: a machine that has vanished hangs up on nobody, and must not keep others away.
"""

import os
import select
import threading
import time
from typing import Dict, List, NamedTuple, Optional

from .host import Host
from .lease import RENEW_S, SILENCE_S, renew_lease

OVER_TIME = "moe-infra:over-time"
ABANDONED = "moe-infra:abandoned"
# How long whoever reads a stream may be silent before he is gone.
STREAM_SILENCE_S = 90.0
PULSE_BYTES = 1024


class Asker(NamedTuple):
    """Who asked, and how long he may be waited for.

    Attributes:
        is_heard: whether standard input stays open while somebody waits, and tells so now and then.
        deadline_s: how long the answer may take, None without a limit.
        lease: the one that came with the request and is to be renewed; None where there is none. Of somebody who is
            not heard it is renewed as long as the answer takes.
        is_stream: whether the answer is sent in pieces for as long as somebody reads them.
    """

    is_heard: bool
    deadline_s: Optional[float]
    lease: Optional[Dict[str, object]]
    is_stream: bool

    @property
    def silence_s(self) -> Optional[float]:
        """How long he may be silent, None for any time."""
        if not self.is_heard:
            return None
        if self.lease is not None:
            return SILENCE_S
        return STREAM_SILENCE_S if self.is_stream else None


class Watch:
    """Ends the agent with everything that was started when nobody waits any more, or when the time is over."""

    def __init__(self, host: Host, asker: Asker) -> None:
        """Begin.

        Args:
            host: whose programs are ended.
            asker: who waits.
        """
        self._host = host
        self._asker = asker
        self._answered, self._end = os.pipe()
        self._begun = self._heard = time.monotonic()
        self._is_held = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def end(self) -> None:
        """The request is answered."""
        os.close(self._end)
        self._watcher.join()
        os.close(self._answered)

    def _watch(self) -> None:
        watched = [0, self._answered] if self._asker.is_heard else [self._answered]
        while True:
            readable = select.select(watched, [], [], self._pause_s())[0]
            if self._answered in readable:
                return None
            if readable:
                if not _heard():
                    return self._leave("")
                self._heard = time.monotonic()
            why = self._why_over()
            if why or ((readable or not self._asker.is_heard) and self._is_lease_lost()):
                return self._leave(why or ABANDONED)

    def _limits(self) -> List[float]:
        """When it is over: at the deadline, and after too long a silence; None of both has no end."""
        limits = ((self._begun, self._asker.deadline_s), (self._heard, self._asker.silence_s))
        return [since + limit for since, limit in limits if limit is not None]

    def _pause_s(self) -> Optional[float]:
        pauses = [max(end - time.monotonic(), 0.0) for end in self._limits()]
        if self._asker.lease is not None and not self._asker.is_heard:
            pauses.append(RENEW_S)
        return min(pauses) if pauses else None

    def _why_over(self) -> str:
        """What is said of the end, "" while it goes on."""
        now, deadline_s = time.monotonic(), self._asker.deadline_s
        if deadline_s is not None and now >= self._begun + deadline_s:
            return OVER_TIME
        return ABANDONED if any(now >= end for end in self._limits()) else ""

    def _is_lease_lost(self) -> bool:
        """Renew the lease; whether it was held before, and is another's or nobody's by now."""
        if self._asker.lease is None:
            return False
        was_held, self._is_held = self._is_held, renew_lease(self._host, self._asker.lease)
        return was_held and not self._is_held

    def _leave(self, why: str) -> None:
        if why:
            os.write(2, (why + "\n").encode("ascii"))
        self._host.end_children()
        os._exit(1)


def _heard() -> bytes:
    """Signs of life, none at the end of standard input."""
    try:
        return os.read(0, PULSE_BYTES)
    except OSError:  # a socket whose other end was closed before it was read empty
        return b""
