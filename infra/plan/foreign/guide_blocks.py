"""The shell blocks of a guide, Markdown or reStructuredText, with the headings that they stand under."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Markup = Literal["Markdown", "reStructuredText"]
DEEPEST = 7
_HEADING = re.compile(r"(#{1,6})\s")
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w+-]*)")
_SHELLS = ("", "bash", "sh", "shell", "console", "zsh", "shell-session")
_UNDERLINE = re.compile(r"([=\-~^\"'`:.*+#_])\1{2,}\s*\Z")
_DIRECTIVE = re.compile(r"^(\s*)\.\. (?:code-block|code|sourcecode)::\s*([\w+-]*)\s*\Z")
_PROMPT = re.compile(r"^(\s*)[$#] (?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of shell.

    Args:
        line: where its content begins, from 1.
        level: of the heading that it stands under, 0 before the first.
        above: the smallest level of a heading since the block before it, `DEEPEST` without one.
    """

    line: int
    text: str
    level: int
    above: int


def shell_blocks(text: str, markup: Markup) -> list[Block]:
    """Every block that is marked as shell, or as nothing, in the order of the page."""
    return _of_restructured(text) if markup == "reStructuredText" else _of_markdown(text)


def _of_markdown(text: str) -> list[Block]:
    blocks: list[Block] = []
    begun: tuple[int, str] | None = None
    kept: list[str] = []
    level, above = 0, DEEPEST
    for number, row in enumerate(text.split("\n"), start=1):
        fence = _FENCE.match(row)
        heading = _HEADING.match(row)
        if begun is None and heading:
            level = len(heading[1])
            above = min(above, level)
        elif begun is None and fence:
            begun, kept = (number + 1, fence[2].lower()), []
        elif begun is not None and fence and not fence[2]:
            if begun[1] in _SHELLS:
                blocks.append(Block(line=begun[0], text="\n".join(kept), level=level, above=above))
                above = DEEPEST
            begun = None
        elif begun is not None:
            kept.append(_PROMPT.sub(r"\1", row) if begun[1] == "console" else row)
    return blocks


def _of_restructured(text: str) -> list[Block]:
    """Code directives; the levels of headings are told by the order in which their underlines appear."""
    rows = text.split("\n")
    levels = _levels(rows)
    blocks: list[Block] = []
    level, above, number = 0, DEEPEST, 0
    while number < len(rows):
        found = _DIRECTIVE.match(rows[number])
        number += 1
        if number in levels:
            level = levels[number]
            above = min(above, level)
        if found is None or found[2].lower() not in _SHELLS:
            continue
        end = number
        while end < len(rows) and (not rows[end].strip() or _indent(rows[end]) > len(found[1])):
            end += 1
        first = next(
            (i for i in range(number, end) if rows[i].strip() and rows[i].lstrip()[0] != ":"), end
        )
        body = [
            _PROMPT.sub(r"\1", row) if found[2] == "console" else row for row in rows[first:end]
        ]
        margin = min((_indent(row) for row in body if row.strip()), default=0)
        content = "\n".join(row[margin:] for row in body)
        blocks.append(Block(line=first + 1, text=content, level=level, above=above))
        above, number = DEEPEST, end
    return blocks


def _levels(rows: list[str]) -> dict[int, int]:
    """Line of a heading's text, from 1 → its level."""
    order: list[str] = []
    found: dict[int, int] = {}
    for number, (row, below) in enumerate(pairwise(rows), start=1):
        line = _UNDERLINE.match(below)
        if (
            line
            and row.strip()
            and not _UNDERLINE.match(row)
            and len(below.rstrip()) >= len(row.rstrip())
        ):
            if line[1] not in order:
                order.append(line[1])
            found[number] = min(order.index(line[1]) + 1, DEEPEST - 1)
    return found


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())
