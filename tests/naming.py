"""How long a fault may go unnamed: ten seconds from the moment at which it can be known (issue 4, section 5).

The limit is meant for a machine that has time for the command. Tests run beside other work, so what is allowed grows as
everything else takes longer: by how much the processor time of a short piece of work is less than its wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMED_S = 10.0
PIECE_S = 0.05


def starvation() -> float:
    """How many times longer work takes here now than its processor time; 1 on a machine that is idle."""
    begun, worked = time.monotonic(), time.process_time()
    while time.process_time() - worked < PIECE_S:
        pass
    return max(1.0, (time.monotonic() - begun) / PIECE_S)


@contextmanager
def in_time(known_after_s: float = 0.0) -> Iterator[None]:
    """A block that begins with a fault and ends with its name.

    Args:
        known_after_s: how long after the block's begin the fault can be told from what is merely slow.
    """
    before, begun = starvation(), time.monotonic()
    yield
    took = time.monotonic() - begun
    allowed = (known_after_s + NAMED_S) * max(before, starvation())
    assert took <= allowed, f"named after {took:.1f} s, and not within {allowed:.1f} s"


def until_named(what: Callable[[], str], name: str, known_after_s: float = 0.0) -> str:
    """Ask until the answer has the name in it, in time; the answer."""
    with in_time(known_after_s):
        limit = time.monotonic() + 6 * (known_after_s + NAMED_S)
        while name not in (said := what()):
            assert time.monotonic() < limit, said
            time.sleep(0.1)
    return said
