"""The operation `receive`: a large file arrives here in pieces, and is there whole and verified, or not at all.

Pieces are written at their offsets into a folder beside the target, so a sending that was cut off goes on from what has
arrived. The folder takes its place, with a manifest as a checkpoint's, once the checksum of all of it is the
announced one. What was received is handed on from host to host as checkpoints are (`staging`).
"""

import os
import shutil
from typing import Any, Dict

from ..files import make_folders
from ..host import Host, Refused
from .manifest import MANIFEST, Entry, hash_file, row_of, write_json, write_verified, wrong_files
from .place import partial_folder
from .transfers import force_to_disk

FOLDER = ".moe-received"
FOLDER_MODE = 0o755


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
    if os.path.isdir(host.path(target)) and not wrong_files(host, target, [entry]):
        return {"is_whole": True, "num_bytes": entry.size_bytes, "free_bytes": 0}
    above = host.path(target)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    space = os.statvfs(above)
    count = min(_size(_partial(request, host, target)), entry.size_bytes)
    return {"is_whole": False, "num_bytes": count, "free_bytes": space.f_bavail * space.f_frsize}


def _write(request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """Write one piece; what follows it is cut off, what is missing before it is refused."""
    path, offset = _partial(request, host, target), int(request["offset"])
    body = request.get("body") or b""
    make_folders(os.path.dirname(path))
    if offset > _size(path):
        raise Refused(
            "{} of the bytes before {} are missing here".format(offset - _size(path), offset)
        )
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
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
    entry, path = _entry(request), _partial(request, host, target)
    if _look(request, host, target)["is_whole"]:
        return {"is_whole": True}
    digests = hash_file(path, entry, lambda _count: None)
    wrong = digests.difference()
    if wrong is not None or _size(path) != entry.size_bytes:
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        raise Refused(
            "what arrived is not what was sent ({}), and was removed".format(wrong or "its size")
        )
    folder = os.path.dirname(path)
    rows = [row_of(entry)]
    document = {"repository": request.get("repository"), "schema_version": 1, "files": rows}
    os.chmod(folder, FOLDER_MODE)
    write_json(os.path.join(folder, MANIFEST), document)
    write_verified(folder, [entry.name])
    force_to_disk(folder)
    shutil.rmtree(host.path(target), ignore_errors=True)
    os.rename(folder, host.path(target))
    force_to_disk(os.path.dirname(host.path(target)))
    return {"is_whole": True}


def _discard(_request: Dict[str, Any], host: Host, target: str) -> Dict[str, object]:
    """Remove the file and what has arrived of it; folders that were made for it go when they are empty."""
    folder = host.path(target)
    for path in (folder, partial_folder(folder)):
        shutil.rmtree(path, ignore_errors=True)
    for path in (folder, partial_folder(folder)):
        if os.path.lexists(path):
            raise Refused("{} cannot be removed".format(path))
    try:
        os.rmdir(os.path.dirname(folder))
    except OSError:  # it holds another one, or is gone already
        return {"is_whole": False}
    return {"is_whole": False}


def _entry(request: Dict[str, Any]) -> Entry:
    name = str(request["name"])
    if not name or "/" in name or name.startswith("."):
        raise Refused("{!r} is not the name of a file".format(name))
    return Entry(name, int(request["size_bytes"]), str(request["sha256"]))


def _partial(request: Dict[str, Any], host: Host, target: str) -> str:
    return os.path.join(partial_folder(host.path(target)), _entry(request).name)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
