"""What an engine itself says, kept so that production's own readers can be tried on it: not compared."""

from __future__ import annotations

import re
from pathlib import Path

PREFIX = "log: "
# As much as production reads of a unit that has ended: launch/readiness.py LOG_LINES.
LAST_LINES = 60
_WIDTH = 300
_PLACES = (
    (re.compile(r"/[^\s'\"]*/lib/python3\.\d+/"), "/usr/lib/python3/"),
    (re.compile(r"/[^\s'\"]*/(?=warm_start\.py)"), "/bench/"),
    (re.compile(r"/[^\s'\"]*/bin/(?=vllm\b|python)"), "/usr/bin/"),
)


def log_lines(output: str, folder: Path) -> list[str]:
    """The lines of a log as it was written, without the places of this machine.

    Args:
        output: all of it.
        folder: of the bench.
    """
    text = output.replace(str(folder), "/bench")
    for pattern, plain in _PLACES:
        text = pattern.sub(plain, text)
    return [line[:_WIDTH] for line in text.splitlines()]


def metric_lines(text: str) -> list[str]:
    """The lines of `/metrics` of the engine itself, without the steps of histograms."""
    return [
        line
        for line in text.splitlines()
        if line.startswith("vllm:") and "_bucket{" not in line and "_created{" not in line
    ]
