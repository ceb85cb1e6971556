"""Rollback and removal: what was found comes back byte for byte; what others changed since stays."""

from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from .files import state_of, write_file
from .host import Host, Refused
from .item import Item, same
from .kinds import KINDS
from .report import Row, reason, row_of
from .rollback import (
    Entry,
    Record,
    current_state,
    described,
    left_alone,
    load_record,
    remove_empty,
    save_record,
)

ORDER = ("ok", "changed", "blocked", "failed")


class Return(NamedTuple):
    """How one entry came back: its state for the report, in words, and whether it is settled."""

    state: str
    before: str
    after: str
    why: str
    is_settled: bool


def take_back(request: Dict[str, object], host: Host, items: List[Item]) -> Tuple[List[Row], bool]:
    """Bring back what the record of a stack holds; returns the rows and whether a unit text changed.

    Mode `rollback` takes every entry of `groups` (else of the groups of `items`, else all); mode
    `remove` takes the entries of `items` alone, and deletes files that are as wanted but unrecorded.
    """
    stack, mode = str(request["stack"]), str(request["mode"])
    record = load_record(host, stack)
    chosen = _chosen(record, request, items)
    by_item: Dict[str, List[Entry]] = {}
    for entry in reversed(chosen):
        by_item.setdefault(entry.item.id, []).append(entry)
    rows: List[Row] = []
    settled: List[Entry] = []
    reload_needed = False
    for entries in by_item.values():
        returns = [(entry, _bring_back(host, entry)) for entry in entries]
        settled += [entry for entry, how in returns if how.is_settled]
        row = _row(entries, [how for _, how in returns])
        reload_needed |= row["state"] == "changed" and bool(entries[0].item.document.get("unit"))
        rows.append(row)
    if mode == "remove":
        for item in items:
            if item.id not in by_item:
                row = _remove_unrecorded(host, item)
                reload_needed |= row["state"] == "changed" and bool(item.document.get("unit"))
                rows.append(row)
    _forget(host, stack, record, settled)
    return rows, reload_needed


def _chosen(record: Record, request: Dict[str, object], items: List[Item]) -> List[Entry]:
    if request["mode"] == "remove":
        ids = {item.id for item in items}
        return [entry for entry in record.entries if entry.item.id in ids]
    listed = request.get("groups")
    groups = set(listed) if isinstance(listed, list) else {item.group for item in items}
    return [entry for entry in record.entries if not groups or entry.item.group in groups]


def _bring_back(host: Host, entry: Entry) -> Return:
    kind = KINDS[entry.item.kind]
    wanted = described(entry.original)
    try:
        current = current_state(host, kind, entry)
        before = described(current)
        if same(current, entry.original):
            return Return("ok", before, before, "already as it was found", is_settled=True)
        foreign = left_alone(entry, current)
        if foreign is not None:
            return Return("blocked", before, before, foreign, is_settled=False)
        kind.write(host, entry.item, entry.part, entry.original)
        after = current_state(host, kind, entry)
    except (OSError, Refused) as error:
        return Return("failed", described(entry.ours), "unknown", reason(error), is_settled=False)
    if not same(after, entry.original):
        why = "{} was written but it is still {}".format(wanted, described(after))
        return Return("blocked", before, described(after), why, is_settled=False)
    return Return("changed", before, described(after), "as it was found", is_settled=True)


def _row(entries: List[Entry], returns: List[Return]) -> Row:
    worst = max(returns, key=lambda how: ORDER.index(how.state))
    values = (
        _joined([how.before for how in returns]),
        _joined([described(entry.original) for entry in entries]),
        _joined([how.after for how in returns]),
    )
    return row_of(entries[0].item, worst.state, values, worst.why)


def _joined(texts: List[str]) -> Optional[str]:
    return ", ".join(sorted(set(texts))) or None


def _remove_unrecorded(host: Host, item: Item) -> Row:
    if item.kind != "file":
        return row_of(item, "ok", (None, None, None), "left as it is")
    current = state_of(host, item.target)
    shown = described(current)
    if current is None:
        return row_of(item, "ok", (shown, "absent", shown), "already gone")
    try:
        reading = KINDS["file"].read(host, item)
        if reading.differing():
            why = "no record says that it is ours, and its content is not"
            return row_of(item, "blocked", (shown, "absent", shown), why)
        write_file(host, item, item.target, None)
    except (OSError, Refused) as error:
        return row_of(item, "failed", (shown, "absent", None), reason(error))
    return row_of(item, "changed", (shown, "absent", "absent"), "it was ours")


def _forget(host: Host, stack: str, record: Record, settled: List[Entry]) -> None:
    """Keep only what has not come back; folders that we made go when they are empty."""
    done: Set[Tuple[str, str]] = {(entry.item.kind, entry.part) for entry in settled}
    left = [entry for entry in record.entries if (entry.item.kind, entry.part) not in done]
    if not left:
        save_record(host, stack, Record([], []))
        remove_empty(host, record.folders)
    elif done:
        kept = remove_empty(host, record.folders)
        needed = [
            folder for folder in kept if any(entry.part.startswith(folder + "/") for entry in left)
        ]
        save_record(host, stack, Record(left, needed))
