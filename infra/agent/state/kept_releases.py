"""The releases kept on this host, one document per plan hash, and the records of every stack that is installed."""

import contextlib
import json
import os
import re
from typing import Dict, List, Optional, cast

from ..files import make_folders, replace_file
from ..host import Host, Refused
from .rollback import PRIVATE_FILE, PRIVATE_FOLDER, STATE_FOLDER, remove_empty

RELEASES_FOLDER = STATE_FOLDER + "/releases"
STACKS_FOLDER = "/etc/moe-infra"
RECORD = "release.json"
UNFINISHED = "unfinished"
KEPT = 5
HASH = re.compile(r"[0-9a-f]{6,64}$")

Document = Dict[str, object]


def answer(request: Document, host: Host) -> Document:
    """The operation `releases`: what is kept and installed here, and one kept document when it is asked for."""
    stack = str(request["stack"])
    wanted = request.get("document")
    document = None if wanted is None else _document(host, stack, str(wanted))
    return dict(summary(host, stack), schema_version=1, document=document)


def summary(host: Host, stack: str) -> Document:
    """What a look at a host tells about releases.

    Returns:
        `records`: the text of `release.json` by stack, every stack's; `kept`: hashes of this stack, newest first;
        `unfinished`: the hash whose installation was begun and not ended, else None.
    """
    folder = host.path(STACKS_FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    texts = {name: _text(host, "{}/{}/{}".format(STACKS_FOLDER, name, RECORD)) for name in names}
    return {
        "records": {name: text for name, text in texts.items() if text is not None},
        "kept": _kept(host, stack),
        "unfinished": _text(host, "{}/{}".format(_folder(stack), UNFINISHED)),
    }


def begin_release(host: Host, stack: str, keep: Document) -> None:
    """Keep a release's document, and note that its installation has begun.

    Raises:
        OSError: there is no room; nothing else has been written yet.
    """
    name = _checked(str(keep["hash"]))
    path = host.path("{}/{}.json".format(_folder(stack), name))
    make_folders(os.path.dirname(path), PRIVATE_FOLDER)
    try:
        if os.path.exists(path):
            os.utime(path)  # the newest again
        else:
            text = json.dumps(keep["document"], sort_keys=True)
            replace_file(path, text.encode("utf-8"), PRIVATE_FILE)
        replace_file(_mark(host, stack), name.encode("ascii"), PRIVATE_FILE)
    except OSError:
        remove_empty(host, [_folder(stack), RELEASES_FOLDER, STATE_FOLDER])
        raise


def finish_release(host: Host, stack: str) -> None:
    """Note that the installation is whole; all but the newest releases are forgotten."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_mark(host, stack))
    for name in _kept(host, stack)[KEPT:]:
        os.unlink(host.path("{}/{}.json".format(_folder(stack), name)))


def forget_releases(host: Host, stack: str) -> List[str]:
    """Remove everything that is kept of a stack; the hashes that were kept, newest first."""
    folder = host.path(_folder(stack))
    kept = _kept(host, stack)
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
    remove_empty(host, [_folder(stack), RELEASES_FOLDER, STATE_FOLDER])
    return kept


def _folder(stack: str) -> str:
    if not stack or "/" in stack or stack.startswith("."):
        raise Refused("{!r} is not the name of a stack".format(stack))
    return "{}/{}".format(RELEASES_FOLDER, stack)


def _mark(host: Host, stack: str) -> str:
    return host.path("{}/{}".format(_folder(stack), UNFINISHED))


def _checked(name: str) -> str:
    if not HASH.match(name):
        raise Refused("{!r} is not the hash of a release".format(name))
    return name


def _kept(host: Host, stack: str) -> List[str]:
    """Hashes, newest first."""
    folder = host.path(_folder(stack))
    names = os.listdir(folder) if os.path.isdir(folder) else []
    files = [os.path.join(folder, name) for name in names if name.endswith(".json")]
    files.sort(key=lambda path: (os.stat(path).st_mtime, path), reverse=True)
    return [os.path.basename(path)[: -len(".json")] for path in files]


def _document(host: Host, stack: str, name: str) -> Optional[Document]:
    text = _text(host, "{}/{}.json".format(_folder(stack), _checked(name)))
    try:
        return None if text is None else cast(Document, json.loads(text))
    except ValueError as error:
        message = "the release {} that is kept here cannot be read: {}"
        raise Refused(message.format(name, error)) from error


def _text(host: Host, path: str) -> Optional[str]:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
