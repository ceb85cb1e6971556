"""One item on this host: observed, promised, or changed and read again."""

from typing import Dict, List, NamedTuple, Optional

from ..host import Host, Refused
from ..item import Item, Kind, Reading, parse_item
from ..kinds.table import KINDS, KNOB_WRITER
from .report import Row, reason, row_of

SEEN_LATER = "engines that run see it after their next start"


class Step(NamedTuple):
    """One item on this host: what was read, or why it could not be."""

    item: Item
    kind: Optional[Kind]
    reading: Optional[Reading]
    problem: str


def observe(host: Host, document: Dict[str, object]) -> Step:
    """What an item is on this host."""
    item = parse_item(document)
    kind = KINDS.get(item.kind)
    if kind is None:
        known = ", ".join(KINDS)
        return Step(item, None, None, "no kind {!r}; this agent knows {}".format(item.kind, known))
    try:
        return Step(item, kind, kind.read(host, item), "")
    except (OSError, Refused, ValueError) as error:
        return Step(item, kind, None, reason(error))


def promise(step: Step, note: str) -> Row:
    """The row of a change that a check withholds."""
    reading = step.reading
    assert reading is not None  # noqa: S101 - only steps with a reading are pending
    why = _joined(step.item.why, note, _later(step.item))
    return row_of(step.item, "changed", (reading.value, reading.wanted, reading.value), why)


def change(host: Host, step: Step, note: str) -> Row:
    """Write what differs, then read it again: only what the host then holds counts."""
    item, kind, before = step.item, step.kind, step.reading
    assert kind is not None  # noqa: S101 - only steps with a reading are pending
    assert before is not None  # noqa: S101 - as above
    problem = ""
    for part in before.differing():
        try:
            kind.write(host, item, part, before.wanted_parts[part])
        except (OSError, Refused) as error:
            problem = problem or reason(error)
    again = observe(host, item.document)
    after = again.reading
    if after is None:
        why = problem or again.problem
        return row_of(item, kind.refusal, (before.value, before.wanted, None), why)
    still = [part for part in before.wanted_parts if part in after.differing()]
    if not still and not problem:
        why = _joined(item.why, note, _later(item), after.locked or "")
        return row_of(item, "changed", (before.value, before.wanted, after.value), why)
    keeper = "the kernel" if kind.writer == KNOB_WRITER else "the host"
    why = problem or "{} kept {} although the write succeeded".format(keeper, after.value)
    return row_of(item, kind.refusal, (before.value, before.wanted, after.value), why)


def _later(item: Item) -> str:
    return SEEN_LATER if item.needs == "engine-restart" else ""


def _joined(*sentences: str) -> str:
    parts: List[str] = [sentence for sentence in sentences if sentence]
    return "; ".join(parts)
