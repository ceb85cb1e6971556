"""What the RDMA cards of a host have counted, looked at twice: under a load only growth says something.

InfiniBand's own counters and the driver's lie in sysfs (linux: Documentation/ABI/stable/sysfs-class-infiniband).
"""

import glob
import time
from typing import Dict, Optional

from ..facts.abandoned import within
from ..host import Host, Refused

FOLDER = "/sys/class/infiniband"
PATTERNS = (FOLDER + "/*/ports/*/counters/*", FOLDER + "/*/ports/*/hw_counters/*")
# How long the kernel holds its own copy, in ms: no counter.
NO_COUNTER = "/lifespan"
# A card whose firmware is dead answers late or never.
LOOK_S = 3.0
GAP_S = 1.0


class CardCounters:
    """The first look, taken when it is made, and the second."""

    def __init__(self, host: Host, until: float) -> None:
        """Look for the first time.

        Args:
            host: whose cards.
            until: on the monotonic clock, when no time is left for a look.
        """
        self._host, self._until = host, until
        self._at = time.monotonic()
        self.problem: Optional[str] = None
        self._before = self._look()

    def again(self) -> str:
        """A line for every counter: what it was, what it is, by how much it has grown; "" without a card.

        The looks are a second apart at least, and as much more as has passed anyway.
        """
        if not self._before:
            return "" if self.problem is None else self.problem + "\n"
        time.sleep(max(0.0, min(self._at + GAP_S, self._until) - time.monotonic()))
        apart, after = time.monotonic() - self._at, self._look()
        if self.problem is not None:
            after = {}
        lines = ["counter  first  {:.1f} s later  grown".format(apart)]
        if self.problem is not None:
            lines.insert(0, self.problem)
        for path, first in sorted(self._before.items()):
            then = after.get(path)
            name = path[len(FOLDER) + 1 :]
            shown = "- -" if then is None else "{} {:+d}".format(then, then - first)
            lines.append("{} {} {}".format(name, first, shown))
        return "\n".join(lines) + "\n"

    def _look(self) -> Dict[str, int]:
        """Every counter by its path; a card that does not answer is left behind, and named as the problem."""
        limit = min(LOOK_S, self._until - time.monotonic())
        try:
            return within(max(limit, 0.0), self._read)
        except (OSError, Refused) as error:
            self.problem = "the cards' counters: {}".format(error)
            return {}

    def _read(self) -> Dict[str, int]:
        found = {}
        for pattern in PATTERNS:
            for path in glob.glob(self._host.path(pattern)):
                try:
                    with open(path, "rb") as stream:
                        text = stream.read(64).decode("ascii", "replace").strip()
                except OSError:  # sysfs has files that exist and do not read
                    continue
                if text.isdecimal() and not path.endswith(NO_COUNTER):
                    found[path[len(self._host.root) :]] = int(text)
        return found
