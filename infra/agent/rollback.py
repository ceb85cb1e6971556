"""The rollback record: what was found before the first write, kept until it has been brought back."""

import json
import os
from typing import Dict, List, NamedTuple, Optional

from .files import make_folders, missing_folders, replace_file, state_of
from .host import Host, Refused
from .item import Item, Kind, Parts, parse_item, same

STATE_FOLDER = "/var/lib/moe-infra"
ROLLBACK_FOLDER = STATE_FOLDER + "/rollback"
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
CONTENT_KEYS = ("content", "content_base64")


class Entry(NamedTuple):
    """One part of one item.

    Args:
        item: the item that was applied, without its content.
        part: the path or property that was written.
        original: its state before our first write, in the form that brings it back.
        ours: the state that we gave it last; a file without its content.
    """

    item: Item
    part: str
    original: object
    ours: object


class Record(NamedTuple):
    """Everything that was written for one stack, oldest first, and the folders made for it."""

    entries: List[Entry]
    folders: List[str]


def record_path(stack: str) -> str:
    """Where a stack's record lies."""
    return "{}/{}/record.json".format(ROLLBACK_FOLDER, stack)


def load_record(host: Host, stack: str) -> Record:
    """The record of a stack, an empty one when nothing was written yet."""
    try:
        document = json.loads(host.read_bytes(record_path(stack)).decode("utf-8"))
        entries = [
            Entry(parse_item(row["item"]), row["part"], row["original"], row["ours"])
            for row in document["entries"]
        ]
        return Record(entries, [str(folder) for folder in document["folders"]])
    except FileNotFoundError:
        return Record([], [])
    except (ValueError, KeyError, TypeError) as error:
        message = "the rollback record {} cannot be read: {!r}"
        raise Refused(message.format(record_path(stack), error)) from error


def save_record(host: Host, stack: str, record: Record) -> None:
    """Write the record and force it to disk, or delete it when nothing is left to bring back."""
    path = host.path(record_path(stack))
    if not record.entries and not record.folders:
        if os.path.exists(path):
            os.unlink(path)
        own = [os.path.dirname(record_path(stack)), ROLLBACK_FOLDER, STATE_FOLDER]
        remove_empty(host, own)
        return
    make_folders(os.path.dirname(path), PRIVATE_FOLDER)
    rows = [_row(entry) for entry in record.entries]
    document = {"schema_version": 1, "stack": stack, "entries": rows, "folders": record.folders}
    replace_file(path, json.dumps(document, sort_keys=True).encode("utf-8"), PRIVATE_FILE)


def remembered(host: Host, record: Record, item: Item, changes: Dict[str, Parts]) -> Record:
    """The record with the writes that are about to happen; an original once kept is never replaced.

    Args:
        host: where new folders would lie.
        record: what is recorded so far.
        item: the item that is written.
        changes: by part, `{"before": state, "after": state}`.
    """
    entries, folders = list(record.entries), list(record.folders)
    index = {(entry.item.kind, entry.part): place for place, entry in enumerate(entries)}
    for part, change in changes.items():
        ours = _without_content(change["after"])
        place = index.get((item.kind, part))
        if place is None:
            entries.append(Entry(item, part, change["before"], ours))
        else:
            entries[place] = Entry(item, part, entries[place].original, ours)
        if item.kind == "file":
            root = len(host.root)
            made = missing_folders(os.path.dirname(host.path(part)))
            folders.extend(path[root:] for path in made if path[root:] not in folders)
    return Record(entries, folders)


def current_state(host: Host, kind: Kind, entry: Entry) -> object:
    """What the recorded part is now; None when it is not there."""
    if entry.item.kind == "file":
        return state_of(host, entry.part)
    return kind.read(host, entry.item).parts.get(entry.part)


def left_alone(entry: Entry, current: object) -> Optional[str]:
    """Why an entry must not be brought back: something else has changed it since; None when it may."""
    if same(current, entry.ours):
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


def _row(entry: Entry) -> Dict[str, object]:
    item = {key: value for key, value in entry.item.document.items() if key not in CONTENT_KEYS}
    return {"item": item, "part": entry.part, "original": entry.original, "ours": entry.ours}


def _without_content(state: object) -> object:
    if isinstance(state, dict):
        return {key: value for key, value in state.items() if key != "content"}
    return state
