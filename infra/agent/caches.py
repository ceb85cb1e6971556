"""The operation `caches`: what engines have compiled for a stack on this host.

look    stack, runtime, reference   {"image": the id that the reference means here, None where it is not known,
                                      "caches": [{accelerator, image, num_bytes}]}
pack    stack, accelerator, image   {"files"}: an archive of it, laid out as a checkpoint that others may fetch
unpack  stack, accelerator, image,  {"num_files"}: what such an archive holds, put into place whole; refused where
        runtime, reference           the reference means another image here than the one that compiled it
drop    stack                       {}: archives go
clear   stack                       {"removed_bytes"}; nothing of the stack may run
"""

import contextlib
import hashlib
import os
import re
import stat
import tarfile
from typing import Any, Dict, List, Optional

from .host import Host, Refused
from .staging.manifest import FILE_MODE, MANIFEST, Entry, as_json, row_of, write_verified
from .trees import Tree, open_tree, walk

FOLDER = "/var/cache/moe-infra"
COMPILE, PACKED, PARTIAL = "compile", "packed", ".partial-"
ARCHIVE = "compile.tar"
FOLDER_MODE = 0o755
CHUNK_BYTES = 1 << 20
INSPECT_S = 20.0
RUNTIMES = ("docker", "podman")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,150}$")


def answer(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Do one action."""
    actions = {"look": _look, "pack": _pack, "unpack": _unpack, "drop": _drop, "clear": _clear}
    action = actions.get(str(request.get("action")))
    if action is None:
        text = "{!r} is not an action; it takes {}"
        raise Refused(text.format(request.get("action"), ", ".join(actions)))
    for key in ("stack", "accelerator", "image"):
        if not NAME.match(str(request.get(key, "none"))):
            raise Refused("{!r} is not the name of a {}".format(request.get(key), key))
    return dict(action(request, host), schema_version=1)


def _look(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    return {"image": _image(request, host), "caches": _caches(str(request["stack"]), host)}


def _caches(stack: str, host: Host) -> List[Dict[str, object]]:
    found: List[Dict[str, object]] = []
    try:
        with open_tree(host.path(_folder(stack, COMPILE))) as top:
            for accelerator in top.names():
                with top.folder(accelerator) as images:
                    for image in images.names():
                        if image.startswith(PARTIAL):
                            continue
                        with images.folder(image) as cache:
                            size = sum(status.st_size for _, status in walk(cache))
                        row = {"accelerator": accelerator, "image": image, "num_bytes": size}
                        found.append(row)
    except FileNotFoundError:
        return []
    return found


def _pack(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Engines may compile meanwhile: what changes while it is read is refused, and nothing is laid out."""
    stack, own = str(request["stack"]), _own(request)
    try:
        with open_tree(host.path(_folder(stack, COMPILE, own))) as cache:
            _drop(request, host)
            with open_tree(host.path(_folder(stack, PACKED, own)), FOLDER_MODE) as packed:
                handle = packed.open(ARCHIVE, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
                with os.fdopen(handle, "w+b") as stream:
                    _write(cache, stream)
                    entry = Entry(ARCHIVE, stream.tell(), _sum(stream))
                document = {"schema_version": 1, "repository": stack, "files": [row_of(entry)]}
                packed.replace(MANIFEST, as_json(document), FILE_MODE)
                write_verified(packed, [ARCHIVE])
    except FileNotFoundError as error:
        raise Refused("nothing is compiled here for {}".format(own)) from error
    except (OSError, tarfile.TarError) as error:
        _drop(request, host)
        raise Refused("what engines compiled cannot be read: {}".format(error)) from error
    return {"files": [row_of(entry)]}


def _write(cache: Tree, stream: Any) -> None:
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, status in walk(cache):
            if not stat.S_ISREG(status.st_mode):
                continue
            with os.fdopen(cache.open(path), "rb") as file:
                member = tarfile.TarInfo(path)
                member.size, member.mode = os.fstat(file.fileno()).st_size, FILE_MODE
                archive.addfile(member, file)


def _sum(stream: Any) -> str:
    stream.flush()
    stream.seek(0)
    digest = hashlib.sha256()
    for data in iter(lambda: stream.read(CHUNK_BYTES), b""):
        digest.update(data)
    return digest.hexdigest()


def _unpack(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    stack, own, image = str(request["stack"]), _own(request), str(request["image"])
    known = _image(request, host)
    if known != image:
        text = "it was compiled by the image {}, and {} is {} here"
        raise Refused(text.format(image[:12], request.get("reference"), (known or "none")[:12]))
    above = host.path(_folder(stack, COMPILE, str(request["accelerator"])))
    with open_tree(above, FOLDER_MODE) as images, images.folder(image, FOLDER_MODE) as cache:
        if any(True for _ in walk(cache)):
            return {"num_files": 0}  # its own engines began meanwhile
        images.remove(PARTIAL + image)
        with images.folder(PARTIAL + image, FOLDER_MODE) as partial:
            count = _extract(host.path(_folder(stack, PACKED, own)), partial)
            for name in partial.names():
                partial.rename(name, cache, name)
        images.remove(PARTIAL + image)
    return {"num_files": count}


def _extract(packed: str, into: Tree) -> int:
    """Put every file of an archive below a folder; how many."""
    count = 0
    with contextlib.ExitStack() as held:
        folder = held.enter_context(open_tree(packed))
        stream = held.enter_context(os.fdopen(folder.open(ARCHIVE), "rb"))
        archive = held.enter_context(tarfile.open(fileobj=stream, mode="r:"))
        for member in archive:
            _put(archive, member, into)
            count += 1
    return count


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Tree) -> None:
    """One file of an archive, below the folder and nowhere else."""
    parts = member.name.split("/")
    content = archive.extractfile(member) if member.isreg() else None
    if content is None or not all(parts) or {".", ".."} & set(parts):
        raise Refused("the archive holds {!r}, which is no file below it".format(member.name))
    if parts[:-1]:
        into.folder("/".join(parts[:-1]), FOLDER_MODE).__exit__()
    handle = into.open(member.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(handle, "wb") as file:
        for data in iter(lambda: content.read(CHUNK_BYTES), b""):
            file.write(data)


def _drop(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    _remove(host, _folder(str(request["stack"])), PACKED)
    return {}


def _clear(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    stack = str(request["stack"])
    size = sum(int(str(row["num_bytes"])) for row in _caches(stack, host))
    _remove(host, FOLDER, stack)
    return {"removed_bytes": size}


def _remove(host: Host, above: str, name: str) -> None:
    try:
        with open_tree(host.path(above)) as folder:
            folder.remove(name)
    except FileNotFoundError:
        return


def _image(request: Dict[str, Any], host: Host) -> Optional[str]:
    """The id that a reference means here."""
    runtime, reference = str(request.get("runtime")), str(request.get("reference"))
    if runtime not in RUNTIMES or reference.startswith("-"):
        return None
    words = [runtime, "image", "inspect", "--format", "{{.Id}}", reference]
    told = host.run(words, INSPECT_S)
    return told.stdout.strip().partition("sha256:")[2] or told.stdout.strip() or None


def _own(request: Dict[str, Any]) -> str:
    return "{}/{}".format(request["accelerator"], request["image"])


def _folder(*parts: str) -> str:
    return "/".join((FOLDER, *parts))
