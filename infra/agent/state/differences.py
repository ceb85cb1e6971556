"""What a change would alter, as text; only what is asked for differences carries and loads this."""

import base64
import difflib
from typing import List, Optional

from ..item import Item, Reading
from .steps import Step

MAX_DIFF_LINES = 400
MAX_DIFF_CHARACTERS = 240


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
    lines = list(difflib.unified_diff(before, after, item.target, item.target, lineterm=""))
    if not lines:
        return "{} → {}".format(reading.value, reading.wanted)
    if len(lines) > MAX_DIFF_LINES:
        more = len(lines) - MAX_DIFF_LINES
        lines = [*lines[:MAX_DIFF_LINES], "… {} more lines".format(more)]
    return "\n".join(_cut(line) for line in lines)


def _cut(line: str) -> str:
    """A line of a diff as far as it can be read: the stored agent holds whole modules in one."""
    more = len(line) - MAX_DIFF_CHARACTERS
    return line if more <= 0 else "{} … {} more characters".format(line[:MAX_DIFF_CHARACTERS], more)


def _lines(state: object) -> Optional[List[str]]:
    if not isinstance(state, dict):
        return []
    if "link" in state:
        return ["link to {}".format(state["link"])]
    try:
        return base64.b64decode(str(state["content"])).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
