"""Which source a file is fetched from next: the nearest host that answers, in the end the origin."""

import threading
import time
from typing import Any, Dict, List, Optional, Set

from ..host import Refused

PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
# How long a host that has worked may refuse: it was there, so it is not only coming up.
GONE_S = 3.0


class Source:
    """A place to fetch from, and how it has behaved.

    Args:
        place: what opens files.
        is_peer: whether it is another host.
        patience_s: how long it may fail, in one go, before it is given up.
    """

    def __init__(self, place: Any, *, is_peer: bool, patience_s: float) -> None:
        """Begin with no failure."""
        self.place = place
        self.name = str(place.endpoint)
        self.is_peer = is_peer
        self.patience_s = patience_s
        self.failing_since: Optional[float] = None
        self.retry_at = 0.0
        self.num_failures = 0
        self.has_worked = False
        self.is_lost = False
        self.words = ""
        self.wrong: Set[str] = set()


class Choice:
    """The sources of one checkpoint, in the order in which they are wanted."""

    def __init__(self, sources: List[Source]) -> None:
        """Take them; peers first."""
        self._sources = sources
        self._guard = threading.Lock()
        self.notes: List[str] = []

    def choose(self, name: str) -> Source:
        """The first source that may have a file; waits while one that matters may come back.

        Raises:
            Refused: none is left; the last one's own words.
        """
        while True:
            with self._guard:
                left = [one for one in self._sources if not one.is_lost and name not in one.wrong]
                now = time.monotonic()
                if not left:
                    raise Refused(self._verdict(name))
                ready = next((one for one in left if one.retry_at <= now), None)
                # a peer that is about to come up is waited for: the origin is for one host
                if ready is not None and not any(one.is_peer for one in left[: left.index(ready)]):
                    return ready
                pause = min(one.retry_at for one in left if one.retry_at > now) - now
            time.sleep(max(min(pause, PAUSE_S), 0.01))

    def worked(self, source: Source) -> None:
        """A source has given bytes."""
        source.has_worked = True
        if source.failing_since is not None:
            with self._guard:
                source.failing_since, source.num_failures = None, 0

    def failed(self, source: Source, error: Exception, *, for_good: bool) -> None:
        """A source could not be used; it is left alone for a while, or for ever."""
        with self._guard:
            now = time.monotonic()
            if source.failing_since is None:
                source.failing_since = now
            source.num_failures += 1
            pause = min(PAUSE_S * 2 ** min(source.num_failures - 1, 6), LONGEST_PAUSE_S)
            pause = PAUSE_S if source.is_peer else pause
            source.retry_at = now + pause
            source.words = str(error) or repr(error)
            is_gone = source.is_peer and source.has_worked
            patience_s = min(source.patience_s, GONE_S) if is_gone else source.patience_s
            if (for_good or now - source.failing_since >= patience_s) and not source.is_lost:
                source.is_lost = True
                self.notes.append("{} is given up: {}".format(source.name, source.words))

    def sent_wrong(self, source: Source, name: str, what: str) -> None:
        """A source has sent a file that is not what was declared."""
        with self._guard:
            source.wrong.add(name)
            source.words = what
            self.notes.append("{} sent {}".format(source.name, what))

    def origin(self) -> Source:
        """The last resort."""
        return self._sources[-1]

    def peers(self) -> List[Source]:
        """The other hosts that are not given up."""
        return [one for one in self._sources if one.is_peer and not one.is_lost]

    def _verdict(self, name: str) -> str:
        origin = self._sources[-1]
        said: Dict[str, str] = {one.name: one.words for one in self._sources if one.words}
        words = said.pop(origin.name, "")
        if not words:
            words = "; ".join("{}: {}".format(*pair) for pair in said.items())
            return "{}: nobody is left to fetch it from ({})".format(name, words)
        return "{}: {}: {}".format(name, origin.name, words)
