"""Files and links: content, mode and owner, written whole or not at all."""

import base64
import binascii
import contextlib
import hashlib
import os
import stat
from typing import Dict, List, Optional, Tuple

from .folders import FOLDER_MODE, open_above, open_folder
from .host import Host, Refused
from .item import Item, Parts, Reading, bring_module

DEFAULT_MODE = "0644"
PRIVATE_MODE = "0600"
# The first line of every text of ours that an operator may come upon.
HEAD = "# Written by moe-infra; `fab tune-hosts --rollback` takes it back.\n"


def read_file(host: Host, item: Item) -> Reading:
    """The file as it lies there and as it is wanted; absent is a state, not an error."""
    wanted = _wanted_state(host, item)
    current = state_of(host, item.target)
    if isinstance(current, dict) and current.get("folder"):
        raise Refused("{} is no regular file".format(item.target))
    is_secret = item.text("secret") is not None
    return Reading(
        value=_shown(current, is_secret=is_secret),
        parts={item.target: current},
        wanted=_shown(wanted, is_secret=is_secret),
        wanted_parts={item.target: wanted},
    )


def state_of(host: Host, path: str) -> Optional[Parts]:
    """What lies at a path, in the form that brings it back; None when nothing does."""
    try:
        status = os.lstat(host.path(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return {"link": os.readlink(host.path(path))}
    if not stat.S_ISREG(status.st_mode):
        return {"folder": True}
    content = host.read_bytes(path)
    mode = "{:04o}".format(stat.S_IMODE(status.st_mode))
    return _file_state(content, mode, status.st_uid, status.st_gid)


def write_file(host: Host, _item: Item, part: str, value: object) -> None:
    """Bring a path to a state: a file (temporary, fsync, rename), a link, or nothing there."""
    path = host.path(part)
    if value is None:
        if os.path.lexists(path):
            folder, name = open_above(path)
            with folder:
                folder.unlink(name)
        return
    state = value if isinstance(value, dict) else {}
    folder, name = open_above(path, FOLDER_MODE)
    with folder:
        if "link" in state:
            folder.link(name, str(state["link"]))
            return
        content = base64.b64decode(str(state["content"]))
        folder.replace(name, content, int(str(state["mode"]), 8), _owner_of(state))


def lay_out_file(host: Host, part: str, value: object) -> None:
    """Write a wanted file beside its place; `write_file` then only has to rename it."""
    state = value if isinstance(value, dict) else {}
    if "sha256" not in state:
        return
    content = base64.b64decode(str(state["content"]))
    folder, name = open_above(host.path(part))
    with folder:
        folder.lay_out(name, content, int(str(state["mode"]), 8), _owner_of(state))


def unlaid(host: Host, part: str) -> None:
    """Remove what was laid out beside a path, or what a write that was killed has left there."""
    with contextlib.suppress(FileNotFoundError):
        folder, name = open_above(host.path(part))
        with folder:
            folder.clear(name)


def replace_file(path: str, content: bytes, mode: int) -> None:
    """Write a file beside its place, force it to disk, and rename it into place."""
    folder, name = open_above(path)
    with folder:
        folder.replace(name, content, mode)


def sync_folder(path: str) -> None:
    """Force the names in a folder to disk, so that a power cut does not undo a rename; not every file system can."""
    with open_folder(path) as folder:
        folder.sync()


def _owner_of(state: Parts) -> Optional[Tuple[int, int]]:
    return (int(str(state["uid"])), int(str(state["gid"]))) if os.geteuid() == 0 else None


def make_folders(path: str, mode: int = FOLDER_MODE) -> None:
    """Make a folder and those above it, whatever the umask of the login is; another agent may be at it, too."""
    open_folder(path, mode).__exit__()


def missing_folders(path: str) -> List[str]:
    """The folders of a path that do not exist yet, outermost first."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing[::-1]


def file_item(target: str, content: bytes, mode: str = DEFAULT_MODE) -> Dict[str, object]:
    """A file of the agent's own, as an item of the tuning group."""
    return {
        "id": "file:" + target,
        "group": "tuning",
        "kind": "file",
        "target": target,
        "content_base64": base64.b64encode(content).decode("ascii"),
        "mode": mode,
        "why": "makes tuning survive a reboot",
    }


def text_state(host: Host, text: str, mode: str = DEFAULT_MODE) -> Parts:
    """The state of a file of ours that holds this text."""
    return _file_state(text.encode("utf-8"), mode, host.owner[0], host.owner[1])


def _wanted_state(host: Host, item: Item) -> Parts:
    link = item.text("link")
    if link is not None:
        return {"link": link}
    encoded = item.text("content_base64")
    text = item.text("content")
    if item.text("program") is not None:
        text = _stored_program(item)
    if text is not None:
        content = text.encode("utf-8")
    elif encoded is not None:
        try:
            content = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise Refused("content_base64 is not base64: {}".format(error)) from error
    else:
        raise Refused("the item says neither content, content_base64, program, secret nor link")
    default = PRIVATE_MODE if item.text("secret") is not None else DEFAULT_MODE
    mode = "{:04o}".format(int(item.text("mode") or default, 8))
    return _file_state(content, mode, host.owner[0], host.owner[1])


def _stored_program(item: Item) -> str:
    """A program of the agent's own, which every agent carries with it."""
    if item.text("program") != "watcher":
        raise Refused("the agent has no program {!r}; it has watcher".format(item.text("program")))
    return str(bring_module("bundle").watcher_program())


def _file_state(content: bytes, mode: str, uid: int, gid: int) -> Parts:
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "mode": mode,
        "uid": uid,
        "gid": gid,
        "content": base64.b64encode(content).decode("ascii"),
    }


def _shown(state: Optional[Parts], *, is_secret: bool) -> Optional[str]:
    if state is None:
        return None
    if "link" in state:
        return "link to {}".format(state["link"])
    checksum = "secret" if is_secret else "sha256:{}".format(str(state.get("sha256"))[:12])
    return "{} mode {} owner {}:{}".format(checksum, state["mode"], state["uid"], state["gid"])
