"""Lines of a file that name an engine's program: where to look when nothing in it was understood to start one."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PROGRAM = re.compile(
    r"vllm serve\b|vllm\.entrypoints\.openai\.api_server|sglang serve\b|sglang\.launch_server|dynamo\.(?:vllm|sglang)\b"
)
_SHOWN = 3
NOT_FOLLOWED = (
    "Save that command as it is run, with the variables that it uses, as a shell script of its own."
)


@dataclass(frozen=True, slots=True)
class Mentions:
    """The lines that name an engine's program.

    Args:
        line: the first of them, from 1.
        said: a sentence about all of them.
    """

    line: int
    said: str


def engine_mentions(text: str) -> Mentions | None:
    """The lines of a file that name a program and are no comment; None where there is none."""
    found = [
        (number, match[0])
        for number, row in enumerate(text.splitlines(), start=1)
        if (match := _PROGRAM.search(row)) and not row.lstrip().startswith(("#", "//"))
    ]
    if not found:
        return None
    numbers = [str(number) for number, _ in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    lines = f"line{'s' * (len(found) > 1)} {', '.join(numbers)}{more}"
    said = f"`{found[0][1]}` stands on {lines}, in what is not followed."
    return Mentions(found[0][0], said)
