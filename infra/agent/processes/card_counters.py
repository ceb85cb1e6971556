"""What the RDMA cards of a host have counted, looked at twice: under a load only growth says something.

InfiniBand's own counters and the driver's lie in sysfs (linux: Documentation/ABI/stable/sysfs-class-infiniband).
"""

import glob
import os
import time
from typing import Dict, List

from ..at_once import each_at_once
from ..facts.abandoned import within
from ..host import Host, Refused

FOLDER = "/sys/class/infiniband"
PATTERNS = ("/ports/*/counters/*", "/ports/*/hw_counters/*")
# How long the kernel holds its own copy, in ms: no counter.
NO_COUNTER = "/lifespan"
# A card whose firmware is dead answers late or never; the others are read beside it.
LOOK_S = 3.0
GAP_S = 1.0
MAX_AT_ONCE = 256


class CardCounters:
    """The first look, taken when it is made, and the second.

    Attributes:
        problems: a line for each look that a card did not answer.
    """

    def __init__(self, host: Host, until: float) -> None:
        """Look for the first time.

        Args:
            host: whose cards.
            until: on the monotonic clock, when no time is left for a look.
        """
        self._host, self._until = host, until
        self._at = time.monotonic()
        self.problems: List[str] = []
        self._cards = sorted(glob.glob(host.path(FOLDER + "/*")))
        self._before = self._look()

    def again(self) -> str:
        """A line for every counter: what it was, what it is, by how much it has grown; "" without a card.

        The looks are a second apart at least, and as much more as has passed anyway.
        """
        lines: List[str] = []
        if self._before:
            time.sleep(max(0.0, min(self._at + GAP_S, self._until) - time.monotonic()))
            apart, after = time.monotonic() - self._at, self._look()
            lines.append("counter  first  {:.1f} s later  grown".format(apart))
            for path, first in sorted(self._before.items()):
                then = after.get(path)
                name = path[len(FOLDER) + 1 :]
                shown = "- -" if then is None else "{} {:+d}".format(then, then - first)
                lines.append("{} {} {}".format(name, first, shown))
        return "".join(line + "\n" for line in self.problems + lines)

    def _look(self) -> Dict[str, int]:
        """Every counter by its path; a card that does not answer is named as a problem, and not asked again.

        What it had answered before counts as well.
        """
        found: Dict[str, Dict[str, int]] = {card: {} for card in self._cards}
        answered: List[str] = []

        def read(card: str) -> None:
            self._read(card, found[card])
            answered.append(card)

        limit = max(min(LOOK_S, self._until - time.monotonic()), 0.0)
        try:
            within(limit, lambda: each_at_once(read, list(found), MAX_AT_ONCE))
        except Refused as error:
            silent = [card for card in found if card not in answered]
            self._cards = [card for card in found if card not in silent]
            if silent:
                names = ", ".join(map(os.path.basename, silent))
                self.problems.append("{}: {}".format(names, error))
        counts: Dict[str, int] = {}
        for each in found.values():
            counts.update(each.copy())  # whoever does not answer may yet add to it
        return counts

    def _read(self, card: str, found: Dict[str, int]) -> None:
        """Add a card's counters to those that are found."""
        for pattern in PATTERNS:
            for path in sorted(glob.glob(card + pattern)):
                try:
                    with open(path, "rb") as stream:
                        text = stream.read(64).decode("ascii", "replace").strip()
                except OSError:  # sysfs has files that exist and do not read
                    continue
                if text.isdecimal() and not path.endswith(NO_COUNTER):
                    found[path[len(self._host.root) :]] = int(text)
