"""What NCCL's RAS service says of jobs, read: which ranks lag behind, failed, or did not answer.

The form is that of `verbose status` of NCCL 2.28.9, recorded with a late, a killed and a stopped rank
(tests/cases/facts/nccl-ras); NCCL user guide, "RAS".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SECTIONS = ("Errors", "Warnings")
_UNDERLINE = re.compile(r"=+$")
MOST_LINES = 40


def read_ras(text: str) -> tuple[str, ...]:
    """The lines of the sections `Errors` and `Warnings`; () where NCCL finds nothing, or said nothing.

    Args:
        text: what the service answered to `verbose status`.
    """
    return tuple(_lines(text.splitlines()))[:MOST_LINES]


def _lines(lines: list[str]) -> Iterator[str]:
    is_told = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _UNDERLINE.match(following):
            is_told = line.strip() in _SECTIONS
        elif is_told and line.strip() and not _UNDERLINE.match(line):
            yield line.rstrip()
