"""The rollback record: what was found before the first write, kept until it has been brought back."""

import json
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from ..files import make_folders, missing_folders, replace_file, state_of, sync_folder, unlaid
from ..host import Host, Refused
from ..item import Item, Kind, Parts, parse_item, same
from .declared import Declared
from .steps import Step

STATE_FOLDER = "/var/lib/moe-infra"
ROLLBACK_FOLDER = STATE_FOLDER + "/rollback"
MAX_EARLIER = 8
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
HOST_SCOPE = ".host"  # no stack's name begins with a dot
# Where a part lies, by kind, when its own name does not say so.
PLACES = {"mtu": "/sys/class/net/{}"}
REUSED = ("nfs-read-ahead",)  # the number of a mount that is gone may be another file system's
# Nobody else has what is called so: what was changed there goes with it.
WHOLLY_OURS = ("firewall",)
CONTENT_KEYS = ("content", "content_base64")

Outcomes = Dict[str, Dict[str, object]]


class Entry(NamedTuple):
    """One part of one item.

    Args:
        item: the item that was applied, without its content.
        part: the path or property that was written.
        original: its state before our first write, in the form that brings it back.
        ours: the state that we gave it last; a file without its content.
        earlier: states that we gave it before: a run that was killed may have left it there.
    """

    item: Item
    part: str
    original: object
    ours: object
    earlier: Tuple[object, ...] = ()


class Record(NamedTuple):
    """What was written in one scope, a stack's files or the host's tuning.

    Args:
        entries: oldest first.
        folders: made for them.
        declared: by owner, the tuning items that it wants of this host; {} for a stack's files.
        outcomes: by id of a tuning item, how it ended last (`outcomes`).
    """

    entries: List[Entry]
    folders: List[str]
    declared: Declared
    outcomes: Outcomes


def record_path(stack: str) -> str:
    """Where the record of a stack, or of `HOST_SCOPE`, lies."""
    return "{}/{}/record.json".format(ROLLBACK_FOLDER, stack)


def load_record(host: Host, stack: str) -> Record:
    """The record of a stack, an empty one when nothing was written yet."""
    try:
        document = json.loads(host.read_bytes(record_path(stack)).decode("utf-8"))
        entries = [
            Entry(
                parse_item(row["item"]),
                row["part"],
                row["original"],
                row["ours"],
                tuple(row.get("earlier", ())),
            )
            for row in document["entries"]
        ]
        folders = [str(folder) for folder in document["folders"]]
        declared, outcomes = document.get("declared", {}), document.get("outcomes", {})
        return Record(entries, folders, dict(declared), dict(outcomes))
    except FileNotFoundError:
        return Record([], [], {}, {})
    except (ValueError, KeyError, TypeError) as error:
        message = "the rollback record {} cannot be read: {!r}"
        raise Refused(message.format(record_path(stack), error)) from error


def save_record(host: Host, stack: str, record: Record) -> None:
    """Write the record and force it to disk, or delete it when nothing is left to bring back."""
    path = host.path(record_path(stack))
    if not record.entries and not record.folders and not record.declared:
        if os.path.exists(path):
            os.unlink(path)
        unlaid(host, record_path(stack))
        own = [os.path.dirname(record_path(stack)), ROLLBACK_FOLDER, STATE_FOLDER]
        remove_empty(host, own)
        return
    rows = [_row(entry) for entry in record.entries]
    document = {
        "schema_version": 1,
        "stack": stack,
        "entries": rows,
        "folders": record.folders,
        "declared": record.declared,
        "outcomes": record.outcomes,
    }
    own = missing_folders(os.path.dirname(path))
    try:
        make_folders(os.path.dirname(path), PRIVATE_FOLDER)
        replace_file(path, json.dumps(document, sort_keys=True).encode("utf-8"), PRIVATE_FILE)
        for folder in sorted({os.path.dirname(made) for made in (path, *own)}):
            sync_folder(folder)
    except OSError:  # no room, or read-only: then not even the folders stay
        remove_empty(host, [folder[len(host.root) :] for folder in own])
        raise


def remembered(host: Host, record: Record, item: Item, changes: Dict[str, Parts]) -> Record:
    """The record with the writes that are about to happen; an original once kept is never replaced.

    Args:
        host: where new folders would lie.
        record: what is recorded so far.
        item: the item that is written.
        changes: by part, `{"before": state, "after": state}`.
    """
    entries, folders = list(record.entries), list(record.folders)
    index = {key_of(entry.item, entry.part): place for place, entry in enumerate(entries)}
    for part, change in changes.items():
        ours = _without_content(change["after"])
        place = index.get(key_of(item, part))
        if place is None and same(change["before"], change["after"]):
            continue  # only its program has to be told again
        if place is None:
            entries.append(Entry(item, part, change["before"], ours))
        else:
            entries[place] = with_ours(entries[place]._replace(item=item), ours)
        if isinstance(change["after"], dict):  # a file or a link
            root = len(host.root)
            made = missing_folders(os.path.dirname(host.path(part)))
            folders.extend(path[root:] for path in made if path[root:] not in folders)
    return record._replace(entries=entries, folders=folders)


def key_of(item: Item, part: str) -> Tuple[str, str]:
    """What a part is on its host: a path says it, any other name only with its item's target."""
    return item.kind, part if part.startswith("/") else "{} {}".format(item.target, part)


def with_ours(entry: Entry, ours: object) -> Entry:
    """An entry that we are about to give another state."""
    if same(entry.ours, ours):
        return entry
    earlier = tuple(state for state in entry.earlier if not same(state, ours))
    return entry._replace(ours=ours, earlier=(*earlier, entry.ours)[-MAX_EARLIER:])


def remembered_step(host: Host, record: Record, step: Step) -> Record:
    """The record with what a step is about to change."""
    if step.kind is None or step.reading is None or not step.kind.recorded:
        return record
    reading = step.reading
    changes: Dict[str, Parts] = {
        part: {"before": reading.parts.get(part), "after": reading.wanted_parts[part]}
        for part in reading.differing()
    }
    return remembered(host, record, step.item, changes)


def current_state(host: Host, kind: Kind, entry: Entry) -> object:
    """What the recorded part is now; None when it is not there."""
    return standing(host, kind, entry)[0]


def standing(host: Host, kind: Kind, entry: Entry) -> Tuple[object, bool]:
    """What the recorded part is now, None when it is not there, and whether the very thing that was set is gone.

    An interface may be gone, a mount, a disk, a knob of another kernel. A file is never: who deletes it has deleted
    what must come back. Nor is what only cannot be told just now.

    Raises:
        OSError: it cannot be looked at.
        Refused: the same.
    """
    if isinstance(entry.ours, dict) or isinstance(entry.original, dict):  # a file or a link
        return state_of(host, entry.part), False
    place = PLACES.get(entry.item.kind, "{}").format(entry.part)
    has_place = place.startswith("/")
    if has_place and not host.exists(place):
        return None, True
    reading = kind.read(host, entry.item)
    may_be_gone = reading.locked is None and (not has_place or entry.item.kind in REUSED)
    return reading.parts.get(entry.part), may_be_gone and entry.part not in reading.parts


def left_alone(entry: Entry, current: object) -> Optional[str]:
    """Why an entry must not be brought back: something else has changed it since; None when it may."""
    is_ours = any(same(current, state) for state in (entry.ours, *entry.earlier))
    if is_ours or entry.item.kind in WHOLLY_OURS:
        return None
    message = "something else has changed {} since: it was {} and became {} by us, now it is {}"
    states = (entry.original, entry.ours, current)
    return message.format(entry.part, *[described(state) for state in states])


def described(state: object) -> str:
    """A state of a part, short enough for a sentence."""
    if state is None:
        return "absent"
    if isinstance(state, dict):
        if "sha256" in state:
            return "sha256:{} mode {}".format(str(state["sha256"])[:12], state.get("mode"))
        return "link to {}".format(state["link"]) if "link" in state else "a folder"
    return str(state)


def remove_empty(host: Host, folders: List[str]) -> List[str]:
    """Remove folders that are empty, innermost first; returns those that stay because they are not."""
    kept = []
    for folder in sorted(folders, key=len, reverse=True):
        path = host.path(folder)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            kept.append(folder)
    return kept[::-1]


def hand_over(host: Host, folders: List[str]) -> None:
    """Folders that we made and that stay because another stack's files lie there go with that stack."""
    root = host.path(ROLLBACK_FOLDER)
    for stack in sorted(os.listdir(root)) if folders and os.path.isdir(root) else []:
        record = load_record(host, stack)
        theirs = [
            folder
            for folder in folders
            if folder not in record.folders
            and any(entry.part.startswith(folder + "/") for entry in record.entries)
        ]
        if theirs:
            save_record(host, stack, record._replace(folders=theirs + record.folders))


def _row(entry: Entry) -> Dict[str, object]:
    item = {key: value for key, value in entry.item.document.items() if key not in CONTENT_KEYS}
    return {
        "item": item,
        "part": entry.part,
        "original": entry.original,
        "ours": entry.ours,
        "earlier": list(entry.earlier),
    }


def _without_content(state: object) -> object:
    if isinstance(state, dict):
        return {key: value for key, value in state.items() if key != "content"}
    return state
