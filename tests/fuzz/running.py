"""A way into the program, and how the program ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutations import Tree

Write = Callable[[Tree, random.Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a task ended, and what it said."""

    code: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One way into the program.

    Args:
        file: name of the file that holds the input.
        seeds: good inputs.
        write: writes a changed document; None where the inputs are no documents.
        run: gives the file to the program, in a folder of its own.
        codes: with which the program may end.
    """

    file: str
    seeds: Callable[[], Sequence[bytes]]
    write: Write | None
    run: Callable[[Path], Ran]
    codes: tuple[int, ...] = (0, 2, 3)
