"""What a change would alter, as text; only what is asked for differences carries and loads this."""

import base64
import difflib
from typing import Iterator, List, Optional, Tuple

from ..item import Item, Reading
from .steps import Step

MAX_DIFF_LINES = 400
# A line of which more differs is cut, and so is a line that does not differ and only says where.
MAX_DIFF_CHARACTERS, MAX_CONTEXT_CHARACTERS = 4000, 60
# What stays of what two lines have alike, at each side of what differs.
ALIKE_CHARACTERS = 40


def difference(step: Step) -> str:
    """What a change would alter, as text."""
    reading = step.reading
    if reading is None:
        return ""
    if step.item.kind in ("file", "login-limits"):
        return _file_difference(step.item, reading)
    return "{}: {} → {}".format(step.item.id, reading.value, reading.wanted)


def _file_difference(item: Item, reading: Reading) -> str:
    """A unified diff of the content; a secret's content is never shown."""
    if item.text("secret") is not None:
        return "(a secret, not shown)"
    before = _lines(reading.parts.get(item.target))
    after = _lines(reading.wanted_parts.get(item.target))
    if before is None or after is None:
        return "(not text)"
    diff = difflib.unified_diff(before, after, item.target, item.target, n=1, lineterm="")
    lines = list(_shortened(list(diff)))
    if not lines:
        return "{} → {}".format(reading.value, reading.wanted)
    if len(lines) > MAX_DIFF_LINES:
        more = len(lines) - MAX_DIFF_LINES
        lines = [*lines[:MAX_DIFF_LINES], "… {} more lines".format(more)]
    return "\n".join(lines)


def _shortened(lines: List[str]) -> Iterator[str]:
    """A diff that is short where lines are alike, and whole in what differs."""
    yield from lines[:2]  # the file's names
    index = 2
    while index < len(lines):
        removed = _run(lines, index, "-")
        added = _run(lines, index + len(removed), "+")
        if len(removed) == len(added) > 0:
            pairs = [_pair(one[1:], other[1:]) for one, other in zip(removed, added)]
            yield from (_cut("-" + one, MAX_DIFF_CHARACTERS) for one, _ in pairs)
            yield from (_cut("+" + other, MAX_DIFF_CHARACTERS) for _, other in pairs)
        elif removed or added:
            yield from (_cut(line, MAX_DIFF_CHARACTERS) for line in [*removed, *added])
        else:
            yield _cut(lines[index], MAX_CONTEXT_CHARACTERS)
        index += len(removed) + len(added) or 1


def _run(lines: List[str], start: int, sign: str) -> List[str]:
    """The lines from one on that begin alike."""
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        end += 1
    return lines[start:end]


def _pair(before: str, after: str) -> Tuple[str, str]:
    """A line as it is and as it would be, without most of what both have at their start and end."""
    start = _alike(before, after)
    most = min(len(before), len(after)) - start
    end = min(most, _alike(before[::-1], after[::-1]))
    head = start - ALIKE_CHARACTERS if start > 2 * ALIKE_CHARACTERS else 0
    tail = end - ALIKE_CHARACTERS if end > 2 * ALIKE_CHARACTERS else 0
    return _between(before, head, tail), _between(after, head, tail)


def _alike(before: str, after: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(before, after))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))


def _between(line: str, head: int, tail: int) -> str:
    middle = line[head : len(line) - tail]
    return "{}{}{}".format("… " if head else "", middle, " …" if tail else "")


def _cut(line: str, limit: int) -> str:
    """A line as far as it can be read: the stored agent holds whole modules in one."""
    more = len(line) - limit
    return line if more <= 0 else "{} … {} more characters".format(line[:limit], more)


def _lines(state: object) -> Optional[List[str]]:
    if not isinstance(state, dict):
        return []
    if "link" in state:
        return ["link to {}".format(state["link"])]
    try:
        return base64.b64decode(str(state["content"])).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
