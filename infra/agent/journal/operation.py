"""The streamed operation `logs`: what recorded processes have written, merged by time, and what they go on writing.

The stream is frames of lines (`frames`). With `follow` it never ends by itself.
"""

import re
from typing import Callable, Dict, List, NamedTuple, Optional, Pattern

from ..host import Host, Refused
from ..processes.record import chosen_processes, read_record, recorded_processes
from .file import WINDOW
from .frames import FrameWriter
from .reading import Bounds, follow, read_forward, read_tails
from .store import NOTHING, by_time, cut

Write = Callable[[bytes], None]


class Query(NamedTuple):
    """Which lines: of which units, the last `lines` of each or all, from where, and matching what."""

    units: List[str]
    lines: Optional[int]
    bounds: Bounds
    grep: Optional[Pattern[bytes]]


def stream(request: Dict[str, object], host: Host, write: Write) -> Dict[str, object]:
    """Send the lines of the recorded processes that are asked for; the report says which there are.

    Raises:
        Refused: the record is damaged, the expression is none, or journald cannot be read.
    """
    rows = recorded_processes(read_record(host, str(request.get("record"))))
    chosen = chosen_processes(rows, request.get("process"), request.get("role"))
    query = _query(request, [str(row["unit"]) for row in chosen])
    out = FrameWriter(write)
    if chosen:
        out.processes([str(row["id"]) for row in chosen])
        _send_lines(host, query, out, follows=bool(request.get("follow")))
    out.end()
    return {"schema_version": 1, "processes": [{"id": r["id"], "role": r["role"]} for r in rows]}


def _query(request: Dict[str, object], units: List[str]) -> Query:
    grep, lines, since, after = (request.get(key) for key in ("grep", "lines", "since", "after"))
    try:
        pattern = None if grep is None else re.compile(str(grep).encode())
    except re.error as error:
        raise Refused("{!r} is not a pattern: {}".format(grep, error)) from error
    bounds = Bounds(
        since=None if since is None else str(since), after=None if after is None else str(after)
    )
    return Query(
        units=units,
        # behind a cursor all is wanted: the last lines have come already
        lines=None if lines is None or after is not None else int(str(lines)),
        bounds=bounds,
        grep=pattern,
    )


def _send_lines(host: Host, query: Query, out: FrameWriter, *, follows: bool) -> None:
    """Everything that there is, then, when it follows, what comes; journald's cursor joins the two."""
    cursor = query.bounds.after
    if query.lines is not None:
        tails = read_tails(host, query.units, query.lines, query.bounds, query.grep)
        cursor = tails.cursor
        merged = by_time([*tails.units, NOTHING])
        # the cursor comes with the last of them: what breaks off before is sent again
        for begin in range(0, len(merged.times), WINDOW):
            out.lines(cut(merged, begin, begin + WINDOW)._replace(cursor=b""))
        out.lines(NOTHING._replace(cursor=(cursor or "").encode()))
    else:
        for lines in read_forward(host, query.units, query.bounds, query.grep):
            out.lines(lines)
            cursor = lines.cursor.decode() or cursor
    out.caught_up()
    if follows:
        for lines in follow(host, query.units, cursor, query.grep):
            out.lines(lines)
