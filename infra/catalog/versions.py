"""Numbers of a release, for comparing."""

from __future__ import annotations

from functools import lru_cache


# Hundreds of rules ask for the same few releases; texts of foreign files are bounded.
@lru_cache(maxsize=1024)
def version_numbers(text: str) -> tuple[int, int, int]:
    """`0.22.1rc1` as (0, 22, 1)."""
    numbers = [0, 0, 0]
    for index, part in enumerate(text.split(".")[:3]):
        digits = "".join(c for c in part.partition("rc")[0].partition("post")[0] if c.isdecimal())
        numbers[index] = int(digits or 0)
    return numbers[0], numbers[1], numbers[2]
