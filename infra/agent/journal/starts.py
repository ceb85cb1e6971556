"""The words of certain starts of units, also those of which journald does not know any more which start they are.

What a process writes that ends at once may name no start: journald asks systemd for it when it reads, and by then the
unit may have ended. Such words are of the start whose main process wrote them, where that is known: a process may speak
before systemd has said that it starts it. Others are of the start that was named before them; where the beginning of a
start lies further back than was read, of the one that is named next.
"""

import contextlib
import json
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..host import Host, Refused
from .lines import NO_MESSAGE

# Fields that tell the unit of an entry, the first that names one of ours; with each, the field that tells the start.
WHOSE: Dict[str, Optional[str]] = {
    "_SYSTEMD_UNIT": "_SYSTEMD_INVOCATION_ID",
    "UNIT": "INVOCATION_ID",
    "OBJECT_SYSTEMD_UNIT": None,
    "COREDUMP_UNIT": None,
}
FIELDS = ["MESSAGE", "MESSAGE_ID", "_PID", *WHOSE, *filter(None, WHOSE.values())]
# systemd's own name of its "Starting …" (SD_MESSAGE_UNIT_STARTING in sd-messages.h): of a start only what its main
# process wrote may be older.
BEGINS = "7d4958e842da4a758f6c1cdc7b36dcc5"


class Start(NamedTuple):
    """One start of a unit.

    Args:
        invocation: systemd's id of it; "" for all starts of the unit.
        main_pid: its main process, also one that has ended; 0 where that is not known.
    """

    invocation: str
    main_pid: int = 0


class Said(NamedTuple):
    """One entry; `time_us` since 1970, `text` may have several lines."""

    time_us: int
    unit: str
    text: str


def read_starts(
    host: Host, starts: Mapping[str, Start], num_entries: int, timeout_s: float
) -> List[Said]:
    """The last entries of some starts of units, in their order.

    Args:
        host: this one.
        starts: which one, by unit.
        num_entries: how many journalctl gives; those of other starts among them are left out.
        timeout_s: for journalctl.

    Raises:
        Refused: journalctl failed, or took too long.
    """
    argv = ["journalctl", "-o", "json", "-a", "--no-pager", "-q", "-n", str(num_entries)]
    argv.append("--output-fields=" + ",".join(FIELDS))
    done = host.run(argv + _matches(starts), timeout_s)
    if done.exit_code != 0:
        raise Refused("journalctl: {}".format(done.last_words))
    entries: List[Mapping[str, object]] = []
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):  # what journalctl had no time to write whole
            entries.append(json.loads(line))
    latest = _started_before(entries, starts, has_more=len(entries) >= num_entries)
    kept = []
    for fields in entries:
        unit, start = _unit_and_start(fields, starts)
        if unit and not start and fields.get("_PID") == str(starts[unit].main_pid):
            start = starts[unit].invocation
        if start:
            latest[unit] = start
        if unit and starts[unit].invocation in ("", latest.get(unit)):
            time_us = int(str(fields.get("__REALTIME_TIMESTAMP", 0)))
            kept.append(Said(time_us, unit, _text(fields.get("MESSAGE"))))
    return kept


def _started_before(
    entries: Sequence[Mapping[str, object]], starts: Mapping[str, Start], *, has_more: bool
) -> Dict[str, str]:
    """Which start each unit was in when the first entry was written, as far as that can be told.

    Args:
        entries: the last ones, in their order.
        starts: those that are wanted, by unit.
        has_more: journald has entries before these.
    """
    found: Dict[str, str] = {}
    for fields in entries:
        unit, start = _unit_and_start(fields, starts)
        if start and unit not in found:
            found[unit] = "" if fields.get("MESSAGE_ID") == BEGINS else start
    nameless = {
        unit: start.invocation for unit, start in starts.items() if has_more and unit not in found
    }
    return {**found, **nameless}


def _matches(starts: Mapping[str, Start]) -> List[str]:
    """What journalctl matches: `-u` takes it longer, and is needed only where a start is not known.

    What systemd says of a unit's other starts is asked for, too: it tells which words without a start are theirs.
    """
    if not all(start.invocation for start in starts.values()):
        return [word for unit in starts for word in ("-u", unit)]
    own = ["_SYSTEMD_INVOCATION_ID=" + start.invocation for start in starts.values()]
    about = ["UNIT=" + unit for unit in starts]
    nameless = ["_SYSTEMD_UNIT=" + unit for unit in starts]
    return [*own, "+", *about, "+", *nameless]


def _unit_and_start(fields: Mapping[str, object], starts: Mapping[str, Start]) -> Tuple[str, str]:
    """Which of our units an entry is of, and which of its starts; "" for each that it does not name."""
    for of_unit, of_start in WHOSE.items():
        unit = fields.get(of_unit)
        if isinstance(unit, str) and unit in starts:
            start = fields.get(of_start) if of_start else None
            return unit, start if isinstance(start, str) else ""
    return "", ""


def _text(message: object) -> str:
    """A message as journalctl writes it in JSON: text, or numbers of bytes where it is none."""
    if isinstance(message, list) and all(isinstance(each, int) for each in message):
        return bytes(message).decode("utf-8", "replace")
    return message if isinstance(message, str) else NO_MESSAGE.decode()
