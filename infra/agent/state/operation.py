"""The operation `state`: observe, compare, apply, verify; check and apply are one path."""

import importlib
from typing import Any, Dict, List, Optional, Tuple

from ..host import Host, Refused
from ..item import Item, Kind, Reading, parse_item
from ..kinds.table import KINDS, bring
from ..lock import host_lock
from .declared import is_declared, joined_with, without
from .lasting import persistent_steps
from .outcomes import note_outcomes, tell_outcomes
from .reload_guard import forbids_reload, held_back, is_rewritten, knows_any, why_not_reload
from .report import Row, row_of
from .rollback import HOST_SCOPE, Entry, Record, load_record, remembered_step, save_record
from .steps import Step, change, observe, promise
from .waiting import Permission, permission_of
from .withdrawn import withdrawn_entries

MODES = ("check", "apply", "boot", "rollback", "remove")
RELOAD_S = 60.0


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
            bring(KINDS)  # whatever has been recorded
            items = [parse_item(document) for document in documents]
            rows, reload_needed = _part("taking_back").take_back(request, host, items)
        else:
            rows, reload_needed, gone = _converge(request, host, documents)
            if gone and not _has_failed(rows):
                back, is_unit = _part("taking_back").withdraw(request, host, gone)
                ids = {row["id"] for row in back}  # of what this owner now leaves alone, once
                rows = [row for row in rows if row["id"] not in ids] + back
                reload_needed = reload_needed or is_unit
            if request.get("prunes") and not _has_failed(rows):
                items = [parse_item(document) for document in documents]
                pruned, is_unit = _part("taking_back").prune(request, host, items)
                rows, reload_needed = rows + pruned, reload_needed or is_unit
        reloaded = reload_needed and mode != "boot" and _reload_units(host, rows, request)
        forgotten = [] if _has_failed(rows) else _settle_releases(request, host)
        told: Dict[str, object] = {}
        if request.get("tells_releases"):
            told = _part("kept_releases").summary(host, stack)
        if forgotten:
            told = dict(told, forgotten_releases=forgotten)
    return dict(told, schema_version=1, items=rows, daemon_reloaded=reloaded)


def _settle_releases(request: Dict[str, object], host: Host) -> List[str]:
    """Keep or forget releases, once all of a request has been done; the hashes that were forgotten."""
    if request["mode"] == "apply" and isinstance(request.get("keep"), dict):
        _part("kept_releases").finish_release(host, str(request["stack"]))
    elif request["mode"] == "rollback" and request.get("forgets_releases"):
        forgotten: List[str] = _part("kept_releases").forget_releases(host, str(request["stack"]))
        return forgotten
    return []


def _part(name: str) -> Any:  # whatever the module holds
    """A module that only some requests need: `parts.parts_of` tells which."""
    return importlib.import_module("." + name, __package__)


def _has_failed(rows: List[Row]) -> bool:
    return any(row["state"] in ("failed", "blocked") and row["group"] == "files" for row in rows)


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
) -> Tuple[List[Row], bool, List[Entry]]:
    mode, owner = str(request["mode"]), str(request["stack"])
    permission = permission_of(request, host)
    record = Record([], [], {}, {}) if mode == "boot" else load_record(host, HOST_SCOPE)
    joined = joined_with(documents, without(record.declared, owner))
    declared_kinds = [str(one.get("kind")) for each in record.declared.values() for one in each]
    bring([*(str(document.get("kind")) for document in joined.documents), *declared_kinds])
    steps = [observe(host, document) for document in joined.documents]
    notes: Dict[str, str] = {}
    tuning = [document for document in documents if document.get("group", "tuning") == "tuning"]
    gone: List[Entry] = []
    if mode != "boot" and (tuning or request.get("withdraws")):
        kept = [one for one in tuning if is_declared(one) and one["id"] not in joined.conflicts]
        declared = dict(without(record.declared, owner), **({owner: kept} if kept else {}))
        record = record._replace(declared=declared)
        lasting = persistent_steps(host, record, steps, permission, notes)
        gone = withdrawn_entries(record, lasting) if request.get("withdraws") else []
        bring([entry.item.kind for entry in gone], ["state.taking_back"] if gone else [])
        steps += lasting
    rows: Dict[int, Row] = {}
    undone: Dict[int, Row] = {}
    pending: List[int] = []
    for place, step in enumerate(steps):
        row = _judge(step, permission, notes, joined.conflicts)
        if row is None:
            pending.append(place)
        else:
            rows[place] = row
    hurts = why_not_reload(request, host, [steps[place] for place in pending])
    for place in [place for place in pending if hurts and is_rewritten(steps[place])]:
        rows[place] = held_back(steps[place], hurts)
        pending.remove(place)
    if mode == "apply":
        if any(row["group"] == "files" for row in rows.values() if row["why"] == hurts):
            raise Refused(hurts)
        before = {scope: load_record(host, scope) for scope in (owner, HOST_SCOPE)}
        _remember(host, owner, record, [steps[place] for place in pending])
        waiting = {place: steps[place] for place in pending}
        undone = _part("laying_out").lay_out(host, request, waiting, before)
        rows.update(undone)
        pending = [place for place in pending if place not in undone]
    changed, reload_needed = _change_all(request, host, {p: steps[p] for p in pending}, notes)
    rows.update(changed)
    ended = [rows[place] for place in range(len(steps))]
    if mode == "check":
        tell_outcomes(record, ended)
    elif mode == "apply" and not undone:
        note_outcomes(host, ended, joined.conflicts)
    return ended, reload_needed, gone


def _change_all(
    request: Dict[str, object], host: Host, steps: Dict[int, Step], notes: Dict[str, str]
) -> Tuple[Dict[int, Row], bool]:
    """The rows of what differs, written or only promised, by place; and whether systemd must read its units again."""
    mode = str(request["mode"])
    differences = _part("differences") if request.get("diff") else None
    rows: Dict[int, Row] = {}
    reload_needed, new_units = False, []
    for place, step in steps.items():
        note = notes.get(step.item.id, "")
        row = change(host, step, note) if mode != "check" else promise(step, note)
        if differences is not None:
            row["diff"] = differences.difference(step)
        is_unit = bool(step.item.document.get("unit"))
        if is_unit and mode != "check" and row["state"] == "changed":
            reload_needed |= is_rewritten(step)
            new_units.append(step.item.target)
        rows[place] = row
    return rows, reload_needed or (mode != "boot" and knows_any(host, new_units))


def _judge(
    step: Step, permission: Permission, notes: Dict[str, str], conflicts: Dict[str, str]
) -> Optional[Row]:
    """How an item ends that needs no write; None when it must be changed."""
    item, reading = step.item, step.reading
    if reading is None or step.kind is None:
        return row_of(item, "failed", (None, item.want, None), step.problem)
    if reading.absent is not None:
        fine = item.tolerate_absent or item.want is None
        state = "not_applicable" if fine else "failed"
        return row_of(item, state, (None, reading.wanted, None), reading.absent)
    settled = _compare(item, step.kind, reading, notes.get(item.id, ""))
    if settled is not None:
        return settled
    refusal = conflicts.get(item.id) or permission.refusal(item, reading)
    if refusal is None:
        return None
    return row_of(item, "blocked", (reading.value, reading.wanted, reading.value), refusal)


def _compare(item: Item, kind: Kind, reading: Reading, note: str) -> Optional[Row]:
    """How an item ends that is here and is as it should be, or cannot be; None when it differs."""
    value, wanted = reading.value, reading.wanted
    if wanted is None:
        return row_of(item, "ok", (value, None, value), reading.locked or item.why)
    if reading.locked is not None:
        return row_of(item, kind.refusal, (value, wanted, value), reading.locked)
    if not reading.differing():
        why = "; ".join(filter(None, ["already so", reading.note, note]))
        return row_of(item, "ok", (value, wanted, value), why)
    return None


def _remember(host: Host, stack: str, host_record: Record, steps: List[Step]) -> None:
    """Put what is about to change into the rollback records, in one write each.

    Tuning belongs to the host, files to the stack.
    """
    _save(host, HOST_SCOPE, host_record, [step for step in steps if step.item.group == "tuning"])
    others = [step for step in steps if step.item.group != "tuning"]
    if others:
        _save(host, stack, load_record(host, stack), others)


def _save(host: Host, scope: str, record: Record, steps: List[Step]) -> None:
    for step in steps:
        record = remembered_step(host, record, step)
    if record != load_record(host, scope):
        save_record(host, scope, record)


def _reload_units(host: Host, rows: List[Row], request: Dict[str, object]) -> bool:
    """Make systemd read the changed unit texts, once; a failure is a row of its own.

    New and removed units need none: systemd reads the former when they are started, and forgets the latter when they
    have ended. So there is none for new ones, unless systemd has something of their names (`knows_any`); and where it
    would hurt, and nothing else has changed by now, it is left out.
    """
    if not host.has_systemd() or forbids_reload(request, host):
        return False
    done = host.run(["systemctl", "daemon-reload"], RELOAD_S)
    if done.exit_code != 0:
        item = parse_item({"id": "systemd:daemon-reload", "group": "files", "kind": "service"})
        why = "systemctl daemon-reload: {}".format(done.last_words)
        rows.append(row_of(item, "failed", (None, "reloaded", None), why))
        return False
    return True
