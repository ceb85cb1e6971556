"""What belongs into a checkpoint's folder: names, sizes and checksums, and how a file is held against them."""

import hashlib
import json
import os
from typing import Callable, Dict, List, NamedTuple, Optional

from ..files import replace_file
from ..host import Host, Refused

MANIFEST = "manifest.json"
VERIFIED = ".verified.json"
CHUNK_BYTES = 1 << 20


class Entry(NamedTuple):
    """One file of a checkpoint.

    Args:
        name: path below the folder, with slashes.
        size_bytes: its true size.
        sha256: of its content; None where the source tells none.
        git_sha1: of its content as a git blob, which hubs tell of small files; None for others.
    """

    name: str
    size_bytes: int
    sha256: Optional[str] = None
    git_sha1: Optional[str] = None


class Digests:
    """The checksums of one file while its bytes pass by."""

    def __init__(self, entry: Entry) -> None:
        """Begin with no byte."""
        self._entry = entry
        self._sha256 = hashlib.sha256()
        self._blob = None
        if entry.git_sha1 is not None:
            self._blob = hashlib.sha1()  # noqa: S324 - git's own name of a file
            self._blob.update("blob {}\0".format(entry.size_bytes).encode("ascii"))

    def update(self, data: "memoryview | bytes") -> None:
        """Take the next bytes."""
        self._sha256.update(data)
        if self._blob is not None:
            self._blob.update(data)

    @property
    def sha256(self) -> str:
        """Of what has passed."""
        return self._sha256.hexdigest()

    def difference(self) -> Optional[str]:
        """What is wrong with the whole content, None when it is what the entry says."""
        wanted, found = self._entry.sha256, self.sha256
        if wanted is not None and wanted != found:
            return "{}: sha256 is {}, declared {}".format(self._entry.name, found, wanted)
        if self._blob is not None and self._blob.hexdigest() != self._entry.git_sha1:
            found = self._blob.hexdigest()
            return "{}: git sha1 is {}, declared {}".format(
                self._entry.name, found, self._entry.git_sha1
            )
        return None


def parse_manifest(content: bytes) -> List[Entry]:
    """Every file of a checkpoint.

    Raises:
        Refused: it is not a manifest, or it names a file outside of its folder.
    """
    try:
        files = json.loads(content.decode("utf-8"))["files"]
        return [entry_of(file) for file in files]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused("the manifest cannot be read: {!r}".format(error)) from error


def foreign_repository(content: bytes, wanted: Optional[str]) -> Optional[str]:
    """The repository that a manifest is of, when that is known and another one is wanted."""
    found = json.loads(content.decode("utf-8")).get("repository")
    return str(found) if found and wanted and found != wanted else None


def entry_of(file: Dict[str, object]) -> Entry:
    """A row of a manifest.

    Raises:
        Refused: it names a file outside of its folder.
    """
    name, size = str(file["name"]), int(str(file["size_bytes"]))
    if not name or os.path.isabs(name) or ".." in name.split("/"):
        raise Refused("the manifest names {!r}, outside of its folder".format(name))
    sha256, git_sha1 = file.get("sha256"), file.get("git_sha1")
    return Entry(
        name=name,
        size_bytes=size,
        sha256=None if sha256 is None else str(sha256),
        git_sha1=None if git_sha1 is None else str(git_sha1),
    )


def row_of(entry: Entry) -> Dict[str, object]:
    """An entry as a row of a manifest."""
    row: Dict[str, object] = {"name": entry.name, "size_bytes": entry.size_bytes}
    if entry.sha256 is not None:
        row["sha256"] = entry.sha256
    if entry.git_sha1 is not None:
        row["git_sha1"] = entry.git_sha1
    return row


def write_json(path: str, document: object, mode: int = 0o644) -> None:
    """Write a document whole or not at all."""
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    replace_file(path, text.encode("utf-8"), mode)


def hash_file(path: str, entry: Entry, advance: Callable[[int], None]) -> Digests:
    """The checksums of a file's first `size_bytes` bytes, or of all of a shorter one.

    Args:
        path: the file.
        entry: what it should be.
        advance: told of the bytes as they pass.
    """
    digests = Digests(entry)
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    left = entry.size_bytes
    with open(path, "rb", buffering=0) as stream:
        while left > 0:
            count = stream.readinto(view[: min(left, CHUNK_BYTES)]) or 0
            if not count:
                break
            digests.update(view[:count])
            advance(count)
            left -= count
    return digests


def wrong_files(host: Host, folder: str, entries: List[Entry]) -> List[str]:
    """What is wrong at a glance: files that are absent, of another size, or changed since they were verified."""
    verified = read_verified(host.path(folder))
    wrong = []
    for entry in entries:
        try:
            found = os.stat(host.path(os.path.join(folder, entry.name)))
        except OSError as error:
            wrong.append("{}: {}".format(entry.name, error.strerror))
            continue
        if found.st_size != entry.size_bytes:
            text = "{} has {} bytes, wanted {}"
            wrong.append(text.format(entry.name, found.st_size, entry.size_bytes))
        elif entry.name in verified and verified[entry.name] != found.st_mtime_ns:
            wrong.append("{} was written to after it was verified".format(entry.name))
    return wrong


def read_verified(folder: str) -> Dict[str, int]:
    """Time of the last change in nanoseconds, by file, when each was last verified; {} when nothing says so."""
    try:
        with open(os.path.join(folder, VERIFIED), encoding="utf-8") as stream:
            listed = json.load(stream)["changed_ns"]
        return {str(name): int(stamp) for name, stamp in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_verified(folder: str, names: List[str]) -> None:
    """Record that these files of a folder have just been verified."""
    stamps = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in names}
    write_json(os.path.join(folder, VERIFIED), {"schema_version": 1, "changed_ns": stamps})
