"""A few of many names or clauses, so that a message stays readable whatever the number of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_NAMED = 3


def listed(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first of several names, and how many more there are: `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def numbered(indices: Iterable[int]) -> str:
    """All of several numbers, of devices for one: `0, 3, 5`."""
    return ", ".join(map(str, indices))


def clauses(told: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first of several clauses, and how many more there are: `a is b; c is d; and 4 more`."""
    more = len(told) - most
    return "; ".join(told[:most]) + (f"; and {more} more" if more > 0 else "")
