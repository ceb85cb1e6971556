"""The operation `state`: observe, compare, apply, verify; check and apply are one path."""

from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from .files import file_difference
from .host import Host, Refused
from .item import Item, Kind, Parts, Reading, parse_item
from .kinds import KINDS
from .lock import host_lock
from .persistence import overruled, overrulers, persistent_items
from .report import Row, reason, row_of
from .rollback import load_record, remembered, save_record
from .taking_back import take_back

MODES = ("check", "apply", "boot", "rollback", "remove")
WAITING = ("drain", "reboot")
RELOAD_S = 60.0


class Step(NamedTuple):
    """One item on this host: what was read, or why it could not be."""

    item: Item
    kind: Optional[Kind]
    reading: Optional[Reading]
    problem: str


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Bring the host to the items of a request, or say what that would change."""
    mode = str(request.get("mode"))
    if mode not in MODES:
        raise Refused("{!r} is not a mode; it takes {}".format(mode, ", ".join(MODES)))
    stack = str(request.get("stack") or "")
    if not stack or "/" in stack or stack.startswith("."):
        raise Refused("{!r} is not the name of a stack".format(stack))
    documents = _documents(request)
    with host_lock(host, str(request.get("operator") or "somebody"), writes=mode != "check"):
        if mode in ("rollback", "remove"):
            rows, reload_needed = take_back(request, host, [parse_item(d) for d in documents])
        else:
            rows, reload_needed = _converge(request, host, documents)
        reloaded = reload_needed and mode != "boot" and _reload_units(host, rows)
    return {"schema_version": 1, "items": rows, "daemon_reloaded": reloaded}


def _documents(request: Dict[str, object]) -> List[Dict[str, object]]:
    """The items' documents, with the content of secret files put in."""
    listed = request.get("items")
    secrets = request.get("secrets")
    known = secrets if isinstance(secrets, dict) else {}
    documents = []
    for document in listed if isinstance(listed, list) else []:
        name = document.get("secret")
        if name is not None and name not in known:
            raise Refused("the request carries no secret {!r}".format(name))
        documents.append(dict(document, content=known[name]) if name is not None else document)
    return documents


def _converge(
    request: Dict[str, object], host: Host, documents: List[Dict[str, object]]
) -> Tuple[List[Row], bool]:
    mode, with_diff = str(request["mode"]), bool(request.get("diff"))
    allowed = request.get("allow")
    waiting = set(WAITING) - set(allowed if isinstance(allowed, list) else [])
    steps = [_observe(host, document) for document in documents]
    notes: Dict[str, str] = {}
    if mode != "boot":
        steps += _persistent_steps(host, steps, notes)
    rows: Dict[int, Row] = {}
    pending: List[int] = []
    for place, step in enumerate(steps):
        row = _judge(step, waiting, notes.get(step.item.id, ""))
        if row is None:
            pending.append(place)
        else:
            rows[place] = row
    if mode == "apply":
        _remember(host, str(request["stack"]), [steps[place] for place in pending])
    reload_needed = False
    for place in pending:
        step, note = steps[place], notes.get(steps[place].item.id, "")
        row = _change(host, step, note) if mode != "check" else _promise(step, note)
        if with_diff:
            row["diff"] = _difference(step)
        is_unit = bool(step.item.document.get("unit"))
        reload_needed |= mode != "check" and row["state"] == "changed" and is_unit
        rows[place] = row
    return [rows[place] for place in range(len(steps))], reload_needed


def _observe(host: Host, document: Dict[str, object]) -> Step:
    item = parse_item(document)
    kind = KINDS.get(item.kind)
    if kind is None:
        known = ", ".join(KINDS)
        return Step(item, None, None, "no kind {!r}; this agent knows {}".format(item.kind, known))
    try:
        return Step(item, kind, kind.read(host, item), "")
    except (OSError, Refused, ValueError) as error:
        return Step(item, kind, None, reason(error))


def _persistent_steps(host: Host, steps: List[Step], notes: Dict[str, str]) -> List[Step]:
    """The steps that keep tuning over a reboot; `notes` gets what other files do to our sysctls."""
    pairs = [(step.item, step.reading) for step in steps if step.reading is not None]
    if not any(item.group == "tuning" for item, _ in pairs):
        return []
    found = overrulers(host)
    shadowed: Set[str] = set()
    for item, reading in pairs:
        note = overruled(item, reading, found)
        if note is not None:
            notes[item.id] = note
            shadowed.add(item.id)
    return [_observe(host, document) for document in persistent_items(pairs, shadowed)]


def _judge(step: Step, waiting: Set[str], note: str) -> Optional[Row]:
    """How an item ends that needs no write; None when it must be changed."""
    item, reading = step.item, step.reading
    if reading is None or step.kind is None:
        return row_of(item, "failed", (None, item.want, None), step.problem)
    if reading.absent is not None:
        fine = item.tolerate_absent or item.want is None
        state = "not_applicable" if fine else "failed"
        return row_of(item, state, (None, reading.wanted, None), reading.absent)
    return _compare(item, step.kind, reading, waiting, note)


def _compare(
    item: Item, kind: Kind, reading: Reading, waiting: Set[str], note: str
) -> Optional[Row]:
    """How an item ends that is here and needs no write; None when it must be changed."""
    value, wanted = reading.value, reading.wanted
    if wanted is None:
        return row_of(item, "ok", (value, None, value), reading.locked or item.why)
    if reading.locked is not None:
        return row_of(item, kind.refusal, (value, wanted, value), reading.locked)
    if not reading.differing():
        why = "; ".join(filter(None, ["already so", reading.note, note]))
        return row_of(item, "ok", (value, wanted, value), why)
    if item.needs in waiting:
        why = "waits for a {}: {}".format(item.needs, item.why)
        return row_of(item, "blocked", (value, wanted, value), why)
    return None


def _remember(host: Host, stack: str, steps: List[Step]) -> None:
    """Put what is about to change into the rollback record, in one write."""
    record = load_record(host, stack)
    before = record
    for step in steps:
        if step.kind is None or step.reading is None or not step.kind.recorded:
            continue
        reading = step.reading
        changes: Dict[str, Parts] = {
            part: {"before": reading.parts.get(part), "after": reading.wanted_parts[part]}
            for part in reading.differing()
        }
        record = remembered(host, record, step.item, changes)
    if record != before:
        save_record(host, stack, record)


def _promise(step: Step, note: str) -> Row:
    reading = step.reading
    assert reading is not None  # noqa: S101 - only steps with a reading are pending
    why = "; ".join(filter(None, [step.item.why, note]))
    return row_of(step.item, "changed", (reading.value, reading.wanted, reading.value), why)


def _change(host: Host, step: Step, note: str) -> Row:
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
    again = _observe(host, item.document)
    after = again.reading
    if after is None:
        why = problem or again.problem
        return row_of(item, kind.refusal, (before.value, before.wanted, None), why)
    still = [part for part in before.wanted_parts if part in after.differing()]
    if not still and not problem:
        why = "; ".join(filter(None, [item.why, note]))
        return row_of(item, "changed", (before.value, before.wanted, after.value), why)
    why = problem or "the kernel kept {} although the write succeeded".format(after.value)
    return row_of(item, kind.refusal, (before.value, before.wanted, after.value), why)


def _reload_units(host: Host, rows: List[Row]) -> bool:
    """Make systemd read the changed unit texts, once; a failure is a row of its own."""
    if not host.has_systemd():
        return False
    done = host.run(["systemctl", "daemon-reload"], RELOAD_S)
    if done.exit_code != 0:
        item = parse_item({"id": "systemd:daemon-reload", "group": "files", "kind": "service"})
        why = "systemctl daemon-reload: {}".format(done.last_words)
        rows.append(row_of(item, "failed", (None, "reloaded", None), why))
        return False
    return True


def _difference(step: Step) -> str:
    reading = step.reading
    if reading is None:
        return ""
    if step.item.kind == "file":
        return file_difference(step.item, reading)
    return "{}: {} → {}".format(step.item.id, reading.value, reading.wanted)
