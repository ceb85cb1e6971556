"""The host's wall clock, as its own `date` tells it, tied to the monotonic clock."""

import time
from typing import NamedTuple, Tuple

from ..host import Host, Refused

DATE_S = 5.0


class WallClock(NamedTuple):
    """What to add to the monotonic clock for the wall clock, and how wrong that may be, in seconds."""

    ahead_s: float
    error_s: float

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return time.monotonic() + self.ahead_s


def read_wall_clock(host: Host) -> WallClock:
    """The wall clock read once; a step of it afterwards is not followed.

    It is asked of a program, so that a test can put another clock in its place.

    Raises:
        Refused: `date` does not answer with a number.
    """
    before = time.monotonic()
    told = host.run(["date", "+%s.%N"], DATE_S)
    after = time.monotonic()
    try:
        wall, cut_off = parse_date(told.stdout)
    except ValueError as error:
        raise Refused("date: {}".format(told.last_words)) from error
    middle, width = (before + after) / 2, after - before
    return WallClock(wall + cut_off / 2 - middle, (width + cut_off) / 2)


def parse_date(text: str) -> Tuple[float, float]:
    """Seconds of `date +%s.%N`, and how much may have been cut off: busybox prints no nanoseconds.

    Raises:
        ValueError: it is no such number.
    """
    seconds, _, rest = text.strip().partition(".")
    if not seconds.isdecimal():
        raise ValueError("{!r} is not seconds since 1970".format(text))
    if not rest.isdecimal():
        return float(seconds), 1.0
    return float("{}.{}".format(seconds, rest)), 0.0
