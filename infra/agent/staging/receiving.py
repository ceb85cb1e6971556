"""The operation `receive`: a large file arrives here in pieces, and is there whole and verified, or not at all.

Pieces are written at their offsets into a folder beside the target, so a sending that was cut off goes on from what has
arrived. The folder takes its place, with a manifest as a checkpoint's, once the checksum of all of it is the
announced one. What was received is handed on from host to host as checkpoints are (`staging`).
"""

import contextlib
import os
from typing import Any, Dict, Iterator, Optional

from ..folders import FOLDER_MODE
from ..host import Host, Refused
from ..trees import Tree, open_above
from .manifest import (
    FILE_MODE,
    MANIFEST,
    Entry,
    as_json,
    hash_file,
    row_of,
    write_verified,
    wrong_files,
)
from .place import partial_name

FOLDER = ".moe-received"


def answer(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Do one action on the one file of a folder."""
    actions = {"look": _look, "write": _write, "publish": _publish, "discard": _discard}
    action = actions.get(str(request.get("action")))
    if action is None:
        text = "{!r} is not an action; it takes {}"
        raise Refused(text.format(request.get("action"), ", ".join(actions)))
    target = str(request["target"])
    if os.path.basename(os.path.dirname(target)) != FOLDER or not os.path.isabs(target):
        raise Refused("{} is no folder of received files".format(target))
    return dict(action(request, host, target), schema_version=1)


def _look(request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """How far the file is here: whether it is whole, else how many of its bytes have arrived."""
    entry = _entry(request)
    if os.path.isdir(host.path(target)) and wrong_files(host, target, [entry]) == ([], ""):
        return {"is_whole": True, "num_bytes": entry.size_bytes, "free_bytes": 0}
    above = host.path(target)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    space = os.statvfs(above)
    count = 0
    with contextlib.suppress(OSError), _arriving(host, target) as folder:
        count = min(_size(folder, entry), entry.size_bytes)
    return {"is_whole": False, "num_bytes": count, "free_bytes": space.f_bavail * space.f_frsize}


def _write(request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """Write one piece; what follows it is cut off, what is missing before it is refused."""
    entry, offset = _entry(request), int(request["offset"])
    body = request.get("body") or b""
    with _arriving(host, target, FOLDER_MODE) as folder:
        lacking = offset - _size(folder, entry)
        if lacking > 0:
            raise Refused("{} of the bytes before {} are missing here".format(lacking, offset))
        handle = folder.open(entry.name, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(handle, offset)
            os.lseek(handle, offset, os.SEEK_SET)
            view = memoryview(body)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)
    return {"num_bytes": offset + len(body)}


def _publish(request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """Verify all of the file, and put it into its place by one rename."""
    entry = _entry(request)
    if _look(request, host, target)["is_whole"]:
        return {"is_whole": True}
    above, name = open_above(host.path(target), FOLDER_MODE)
    with above, _arriving(host, target, FOLDER_MODE) as folder:
        wrong = _difference(folder, entry)
        if wrong is not None:
            above.remove(partial_name(name))
            raise Refused("what arrived is not what was sent ({}), and was removed".format(wrong))
        rows = [row_of(entry)]
        document = {"repository": request.get("repository"), "schema_version": 1, "files": rows}
        os.fchmod(folder.handle, FOLDER_MODE)
        folder.replace(MANIFEST, as_json(document), FILE_MODE)
        write_verified(folder, [entry.name])
        folder.sync()
        above.remove(name)
        above.rename(partial_name(name), above, name)
        if not folder.is_at(above, name):
            raise Refused("{} was swapped while it was put into place".format(target))
        above.sync()
    return {"is_whole": True}


def _discard(_request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """Remove the file and what has arrived of it; folders that were made for it go when they are empty."""
    with contextlib.suppress(FileNotFoundError):
        above, name = open_above(host.path(target))
        with above:
            for each in (name, partial_name(name)):
                above.remove(each)
        above, name = open_above(os.path.dirname(host.path(target)))
        with above, contextlib.suppress(OSError):  # it holds another one, or is gone already
            os.rmdir(name, dir_fd=above.handle)
    return {"is_whole": False}


def _entry(request: Dict[str, Any]) -> Entry:
    name = str(request["name"])
    if not name or "/" in name or name.startswith("."):
        raise Refused("{!r} is not the name of a file".format(name))
    return Entry(name, int(request["size_bytes"]), str(request["sha256"]))


@contextlib.contextmanager
def _arriving(host: Host, target: str, make: Optional[int] = None) -> Iterator[Tree]:
    """The folder in which the file arrives; what is there and not root's own is removed.

    Raises:
        OSError: it is not there, and is not to be made.
    """
    above, name = open_above(host.path(target), make)
    with above:
        partial = partial_name(name)
        if make is None and not above.has(partial):
            raise FileNotFoundError(partial)
        folder, _ = above.own_folder(partial)
        with folder:
            yield folder


def _difference(folder: Tree, entry: Entry) -> Optional[str]:
    """What is wrong with what arrived; None for nothing."""
    if _size(folder, entry) != entry.size_bytes:
        return "its size"
    handle = folder.open(entry.name)
    try:
        return hash_file(handle, entry, lambda _count: None).difference()
    finally:
        os.close(handle)


def _size(folder: Tree, entry: Entry) -> int:
    try:
        return folder.status(entry.name).st_size
    except OSError:
        return 0
