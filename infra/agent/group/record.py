"""What a host remembers of its groups: on disk what must outlive a reboot, in /run what `fab status` reads."""

import contextlib
import json
import os
import shutil
from typing import Dict, List, NamedTuple, Optional

from ..files import make_folders, replace_file
from ..host import Host
from .rules import ADOPT, Memory

# Where systemd notes that the watcher's unit is enabled (`WantedBy` in render/units.py).
HANDED_OVER = "/etc/systemd/system/multi-user.target.wants/moe-{}-watch.service"
RECORDS = "/var/lib/moe-infra/groups"
VIEWS = "/run/moe-infra/groups"
# Beside the views of groups: what there is to say of the router.
ROUTER = "router"
# In the view of a group: what its file should say, and the disk has not taken.
UNWRITTEN = "unwritten"
SCHEMA_VERSION = 1
MODE = 0o644

Document = Dict[str, object]


class OwnRecord(NamedTuple):
    """What a host remembers of its own part of a group.

    Args:
        epoch: the newest that it started, took over or refused.
        adopting: `fab up` has handed it over, and nobody has said which epoch it is.
        invocations: systemd's id of each unit's start in that epoch, by unit.
        ended: its units were stopped on purpose.
    """

    epoch: int
    adopting: bool
    invocations: Dict[str, str]
    ended: bool


class Record(NamedTuple):
    """A group's file: the host's own part, and what it remembers as the host of rank 0."""

    own: OwnRecord
    memory: Memory


def fresh_record() -> Record:
    """Of a group that was never handed over before."""
    own = OwnRecord(epoch=0, adopting=True, invocations={}, ended=False)
    return Record(own, Memory(0, ADOPT, 0, 0, "", 0.0))


def load_record(host: Host, stack: str, group: str, now: float) -> Record:
    """The group's record; a missing or damaged one is a fresh one.

    Args:
        host: this one.
        stack: its name.
        group: the group's.
        now: when its phase begins for whoever reads it.
    """
    document = _read(host, record_path(stack, group))
    own, memory = document.get("own"), document.get("lead")
    if not isinstance(own, dict) or not isinstance(memory, dict):
        return fresh_record()
    return Record(
        OwnRecord(
            epoch=int(own["epoch"]),
            adopting=bool(own["adopting"]),
            invocations={str(name): str(text) for name, text in own["invocations"].items()},
            ended=bool(own["ended"]),
        ),
        Memory(
            epoch=int(memory["epoch"]),
            phase=str(memory["phase"]),
            restarts=int(memory["restarts"]),
            attempts=int(memory["attempts"]),
            why=str(memory["why"]),
            since=now,
        ),
    )


def save_record(host: Host, stack: str, group: str, record: Record) -> None:
    """Force the record to disk: what it says is told to others afterwards."""
    own, memory = record
    document = {
        "schema_version": SCHEMA_VERSION,
        "own": dict(own._asdict()),
        "lead": told_of(memory),
    }
    _write(host, record_path(stack, group), document)


def told_of(memory: Memory) -> Document:
    """What lasts of what the host of rank 0 remembers."""
    return {
        "epoch": memory.epoch,
        "phase": memory.phase,
        "restarts": memory.restarts,
        "attempts": memory.attempts,
        "why": memory.why,
    }


def is_handed_over(host: Host, stack: str) -> bool:
    """Whether the stack's groups are this host's watcher's: its unit is enabled, for the next boot too."""
    return host.exists(HANDED_OVER.format(stack))


def hand_over(host: Host, stack: str) -> None:
    """Let whatever runs when the watcher starts again count as one epoch, whoever started it.

    A restart that somebody asked for before is over: `fab up` has looked at the ranks since.
    """
    for group in known_groups(host, stack):
        drop_wish(host, stack, group)
        record = load_record(host, stack, group, 0.0)
        save_record(
            host,
            stack,
            group,
            Record(
                record.own._replace(adopting=True, ended=False),
                record.memory._replace(phase=ADOPT, attempts=0),
            ),
        )
        view = read_view(host, stack, group)
        if view.pop(UNWRITTEN, None):
            save_view(host, stack, group, view)


def forget(host: Host, stack: str) -> None:
    """Remove every record of a stack, and the folder when it was the last one."""
    for folder in (RECORDS, VIEWS):
        shutil.rmtree(host.path("{}/{}".format(folder, stack)), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(host.path(folder))


def known_groups(host: Host, stack: str) -> List[str]:
    """The groups that have a record here, by name."""
    try:
        names = os.listdir(host.path("{}/{}".format(RECORDS, stack)))
    except OSError:
        return []
    return sorted(group_of(name) for name in names if name.endswith(".json"))


def save_view(host: Host, stack: str, group: str, view: Document) -> None:
    """What `fab status` shows of a group, as it is now."""
    _write(host, view_path(stack, group), view)


def read_view(host: Host, stack: str, group: str) -> Document:
    """The latest view, {} for none since the boot."""
    return _read(host, view_path(stack, group))


class Wish(NamedTuple):
    """Who asks for a restart, and the epoch that shall end; None for whichever runs."""

    who: str
    epoch: Optional[int]


def ask_restart(host: Host, stack: str, group: str, wish: Wish) -> None:
    """Leave word for the watcher that the group shall be restarted.

    Left twice it is granted once, where it names the epoch: by then that one has ended.
    """
    _write(host, _wish_path(stack, group), dict(wish._asdict()))


def read_wish(host: Host, stack: str, group: str) -> Optional[Wish]:
    """Who asks for a restart, None for nobody."""
    path = _wish_path(stack, group)
    if not host.exists(path):
        return None
    document = _read(host, path)
    epoch = document.get("epoch")
    return Wish(str(document.get("who") or "somebody"), epoch if isinstance(epoch, int) else None)


def drop_wish(host: Host, stack: str, group: str) -> None:
    """A wish that has been granted, or is about an epoch that has ended."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(host.path(_wish_path(stack, group)))


def leave_out(host: Host, stack: str, groups: List[str], start: str) -> None:
    """Remember which groups the router was told to leave out; `start` says which of its starts was told."""
    _write(host, _left_out_path(stack), {"groups": sorted(groups), "start": start})


def left_out(host: Host, stack: str) -> Dict[str, List[str]]:
    """The groups that a router of this host was told to leave out, by the start that was told."""
    document = _read(host, _left_out_path(stack))
    listed = document.get("groups")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    return {str(document.get("start")): names} if names else {}


def record_path(stack: str, group: str) -> str:
    """`prefill/0` → the file of its record."""
    return "{}/{}/{}.json".format(RECORDS, stack, group.replace("/", "+"))


def view_path(stack: str, group: str) -> str:
    """The file of a group's view."""
    return "{}/{}/{}.json".format(VIEWS, stack, group.replace("/", "+"))


def group_of(name: str) -> str:
    """A group's name of its file's."""
    return name[: -len(".json")].replace("+", "/")


def _left_out_path(stack: str) -> str:
    return "{}/{}/router.left-out".format(VIEWS, stack)


def _wish_path(stack: str, group: str) -> str:
    return "{}/{}/{}.restart".format(VIEWS, stack, group.replace("/", "+"))


def _read(host: Host, path: str) -> Document:
    try:
        document = json.loads(host.read_bytes(path).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(host: Host, path: str, document: Document) -> None:
    make_folders(os.path.dirname(host.path(path)))
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    replace_file(host.path(path), text.encode("utf-8"), MODE)
