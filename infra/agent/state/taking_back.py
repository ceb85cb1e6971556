"""Rollback and removal: what was found comes back byte for byte; what others changed since stays."""

from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from ..files import state_of, unlaid, write_file
from ..host import Host, Refused
from ..item import Item, same
from ..kinds.kernel_knobs import parse_ports, render_ports
from ..kinds.table import KINDS
from ..told import is_untold
from .declared import Document, all_together, owner_words, without
from .lasting import persistent_steps
from .outcomes import of_declared
from .report import Row, reason, row_of
from .rollback import (
    HOST_SCOPE,
    Entry,
    Record,
    current_state,
    described,
    hand_over,
    key_of,
    left_alone,
    load_record,
    remembered_step,
    remove_empty,
    save_record,
    standing,
    with_ours,
)
from .steps import change
from .waiting import Permission, permission_of

Refusal = Callable[[Item], Optional[str]]
GONE = "it is gone: nothing to take back"
ORDER = ("ok", "changed", "blocked", "failed")
TUNING = "tuning"
PRUNED = ("files", "firewall")


class Return(NamedTuple):
    """How one entry came back: its state for the report, in words, and whether it is settled."""

    state: str
    before: str
    after: str
    why: str
    is_settled: bool


def take_back(request: Dict[str, object], host: Host, items: List[Item]) -> Tuple[List[Row], bool]:
    """Bring back what the records of a stack hold; returns the rows and whether a unit text changed.

    Mode `rollback` takes every entry of `groups` (else of the groups of `items`, else all); mode
    `remove` takes the entries of `items` alone, and deletes files that are as wanted but unrecorded.
    """
    stack, mode = str(request["stack"]), str(request["mode"])
    permission = permission_of(request, host)
    groups = _groups(request, items)
    record = load_record(host, stack)
    known = [*load_record(host, HOST_SCOPE).entries, *record.entries]
    units = {entry.item.id for entry in known if entry.item.document.get("unit")}
    units |= {item.id for item in items if item.document.get("unit")}
    rows: List[Row] = []
    if mode == "rollback" and (not groups or TUNING in groups):
        rows += _take_back_tuning(host, stack, permission)
    if mode == "remove":
        ids = {item.id for item in items}
        chosen = [entry for entry in record.entries if entry.item.id in ids]
    else:
        chosen = [entry for entry in record.entries if not groups or entry.item.group in groups]
    returned, settled = _bring_all_back(host, chosen, permission.disturbs)
    rows += returned
    if mode == "remove":
        names = {entry.item.id for entry in chosen}
        rows += [_remove_unrecorded(host, item) for item in items if item.id not in names]
    _forget(host, stack, record, settled)
    return rows, any(row["state"] == "changed" and row["id"] in units for row in rows)


def prune(request: Dict[str, object], host: Host, items: List[Item]) -> Tuple[List[Row], bool]:
    """Take back the recorded files and rules that `items` no longer hold; in mode check, say what that would be.

    What the request `spares` by id stays, although this request does not bring it about.
    """
    wanted = {item.id for item in items}
    record = load_record(host, str(request["stack"]))
    spared = request.get("spares")
    wanted |= set(map(str, spared if isinstance(spared, list) else ()))
    gone = [e for e in record.entries if e.item.group in PRUNED and e.item.id not in wanted]
    if request["mode"] == "check":
        rows = []
        for entry in gone:
            current = described(current_state(host, KINDS[entry.item.kind], entry))
            values = (current, described(entry.original), current)
            rows.append(row_of(entry.item, "changed", values, "no longer part of the release"))
        return rows, False
    return take_back(dict(request, mode="remove"), host, [entry.item for entry in gone])


def withdraw(
    request: Dict[str, object], host: Host, entries: List[Entry]
) -> Tuple[List[Row], bool]:
    """Bring back what nobody wants any more, in mode check say what that would be; as `take_back` returns it."""
    refuses = permission_of(request, host).refusal_to_withdraw
    if request["mode"] == "check":
        rows, _ = _bring_all_back(host, entries, refuses, _foretell)
    else:
        rows, settled = _bring_all_back(host, entries, refuses)
        _forget(host, HOST_SCOPE, load_record(host, HOST_SCOPE), settled)
    for row in rows:
        row["why"] = "nobody wants it any more; {}".format(row["why"])
    units = {entry.item.id for entry in entries if entry.item.document.get("unit")}
    return rows, any(row["state"] == "changed" and row["id"] in units for row in rows)


def _groups(request: Dict[str, object], items: List[Item]) -> Set[str]:
    listed = request.get("groups")
    return {str(name) for name in listed} if isinstance(listed, list) else {i.group for i in items}


def _take_back_tuning(host: Host, owner: str, permission: Permission) -> List[Row]:
    """Take back what one owner has declared for the host; what somebody else still wants stays."""
    record = load_record(host, HOST_SCOPE)
    others = without(record.declared, owner)
    if not others:
        rows, settled = _bring_all_back(host, record.entries, permission.disturbs)
        _forget(host, HOST_SCOPE, record._replace(declared={}), settled)
        return rows
    if owner not in record.declared:
        return []
    shared = {str(document["id"]): document for document in all_together(others)}
    record, rows = _leave_shared(host, record._replace(declared=others), shared)
    lasting = persistent_steps(host, record, [], permission, {})
    rewritten = [step for step in lasting if step.reading and step.reading.differing()]
    for step in rewritten:
        record = remembered_step(host, record, step)
    save_record(host, HOST_SCOPE, record)
    rows += [change(host, step, "") for step in rewritten]
    kept = {step.item.id for step in lasting} | set(shared)
    own = [entry for entry in record.entries if entry.item.id not in kept]
    returned, settled = _bring_all_back(host, own, permission.disturbs)
    _forget(host, HOST_SCOPE, record, settled)
    return returned + rows


def _leave_shared(
    host: Host, record: Record, shared: Dict[str, Document]
) -> Tuple[Record, List[Row]]:
    """Leave what others still want, and take our ports out of the list that is reserved for all."""
    rows: Dict[str, Row] = {}
    entries = list(record.entries)
    fewer: List[Entry] = []
    for place, entry in enumerate(record.entries):
        document = shared.get(entry.item.id)
        if document is None:
            continue
        shown = described(entry.ours)
        why = "{} still wants it".format(_wanting(record, entry.item.id))
        rows[entry.item.id] = row_of(entry.item, "ok", (shown, shown, shown), why)
        ours = _fewer_ports(host, entry, document)
        if ours is not None:
            entries[place] = with_ours(entry, ours)
            fewer.append(entries[place])
            rows[entry.item.id] = row_of(entry.item, "changed", (shown, ours, ours), why)
    record = record._replace(entries=entries)
    save_record(host, HOST_SCOPE, record)
    for entry in fewer:
        try:
            KINDS[entry.item.kind].write(host, entry.item, entry.part, entry.ours)
        except (OSError, Refused) as error:
            values = (described(entry.earlier[-1]), described(entry.ours), None)
            rows[entry.item.id] = row_of(entry.item, "failed", values, reason(error))
    return record, list(rows.values())


def _wanting(record: Record, name: str) -> str:
    """Who still wants an item, in words."""
    return ", ".join(
        owner_words(owner)
        for owner, items in sorted(record.declared.items())
        if any(item["id"] == name for item in items)
    )


def _fewer_ports(host: Host, entry: Entry, document: Document) -> Optional[str]:
    """What was reserved before us and what others still want; None when that is what we have."""
    if entry.item.kind != "reserved-ports":
        return None
    found = parse_ports(str(entry.original))
    wanted = parse_ports(str(document["want"]))
    ours = str(entry.original) if wanted <= found else render_ports(found | wanted)
    current = current_state(host, KINDS[entry.item.kind], entry)
    return None if same(current, ours) or left_alone(entry, current) is not None else ours


def _foretell(_host: Host, entry: Entry, current: object) -> Return:
    """What bringing one entry back would be."""
    before = described(current)
    why = "{} would come back".format(described(entry.original))
    return Return("changed", before, before, why, is_settled=False)


def _write_back(host: Host, entry: Entry, current: object) -> Return:
    """Bring one entry back, and read it again."""
    kind, wanted = KINDS[entry.item.kind], described(entry.original)
    kind.write(host, entry.item, entry.part, entry.original)
    after = current_state(host, kind, entry)
    if not same(after, entry.original):
        why = "{} was written but it is still {}".format(wanted, described(after))
        return Return("blocked", described(current), described(after), why, is_settled=False)
    late = "; the host has it after its next reboot" if entry.item.needs == "reboot" else ""
    why = "as it was found" + late
    return Return("changed", described(current), described(after), why, is_settled=True)


def _bring_all_back(
    host: Host,
    chosen: List[Entry],
    refuses: Refusal,
    bring: Callable[[Host, Entry, object], Return] = _write_back,
) -> Tuple[List[Row], List[Entry]]:
    """Bring entries back, the newest first; the rows, one per item, and the entries that are settled."""
    by_item: Dict[str, List[Entry]] = {}
    for entry in reversed(chosen):
        by_item.setdefault(entry.item.id, []).append(entry)
    rows: List[Row] = []
    settled: List[Entry] = []
    for entries in by_item.values():
        returns = [(entry, _bring_back(host, entry, refuses, bring)) for entry in entries]
        settled += [entry for entry, how in returns if how.is_settled]
        rows.append(_row(entries, [how for _, how in returns]))
    return rows, settled


def _bring_back(
    host: Host, entry: Entry, refuses: Refusal, bring: Callable[[Host, Entry, object], Return]
) -> Return:
    try:
        current, is_gone = standing(host, KINDS[entry.item.kind], entry)
        before = described(current)
        if is_gone:
            return Return("ok", before, before, GONE, is_settled=True)
        if isinstance(entry.ours, dict) and bring is _write_back:
            unlaid(host, entry.part)
        is_back = same(current, entry.original)
        if is_back and not is_untold(host, entry.part):
            return Return("ok", before, before, "already as it was found", is_settled=True)
        stays = None if is_back else left_alone(entry, current)
        refusal = stays or refuses(entry.item)
        if refusal is not None:
            return Return("blocked", before, before, refusal, is_settled=False)
        return bring(host, entry, current)
    except (OSError, Refused) as error:
        return Return("failed", described(entry.ours), "unknown", reason(error), is_settled=False)


def _row(entries: List[Entry], returns: List[Return]) -> Row:
    worst = max(returns, key=lambda how: ORDER.index(how.state))
    values = (
        _joined([how.before for how in returns]),
        _joined([described(entry.original) for entry in entries]),
        _joined([how.after for how in returns]),
    )
    return row_of(entries[0].item, worst.state, values, worst.why)


def _joined(texts: List[str]) -> Optional[str]:
    return ", ".join(sorted(set(texts))) if texts else None


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


def _forget(host: Host, scope: str, record: Record, settled: List[Entry]) -> None:
    """Keep only what has not come back; folders that we made go when they are empty."""
    done: Set[Tuple[str, str]] = {key_of(entry.item, entry.part) for entry in settled}
    left = [entry for entry in record.entries if key_of(entry.item, entry.part) not in done]
    if not left and not record.declared:
        save_record(host, scope, Record([], [], {}, {}))
        hand_over(host, remove_empty(host, record.folders))
        return
    kept = remove_empty(host, record.folders)
    needed = [folder for folder in kept if any(e.part.startswith(folder + "/") for e in left)]
    outcomes = of_declared(record)
    save_record(host, scope, record._replace(entries=left, folders=needed, outcomes=outcomes))
