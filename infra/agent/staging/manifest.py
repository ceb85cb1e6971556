"""What belongs into a checkpoint's folder: names, sizes and checksums, and how a file is held against them."""

import hashlib
import json
import os
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from ..files import replace_file
from ..host import Host, Refused
from ..trees import Tree, is_believable, open_tree

MANIFEST = "manifest.json"
VERIFIED = ".verified.json"
CHUNK_BYTES = 1 << 20
FILE_MODE = 0o644
NOT_ROOTS = (
    "others than root may write to {}, or put something else into its place, so that no note of an earlier check of "
    "it is believed (chown root and chmod go-w it and the folders above)"
)


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


def has_sum(file: Dict[str, object]) -> bool:
    """Whether a row of a manifest says by what its file is known."""
    return file.get("sha256") is not None or file.get("git_sha1") is not None


def as_json(document: object) -> bytes:
    """A document as its file holds it."""
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8")


def write_json(path: str, document: object, mode: int = 0o644) -> None:
    """Write a document whole or not at all."""
    replace_file(path, as_json(document), mode)


def hash_file(handle: int, entry: Entry, advance: Callable[[int], None]) -> Digests:
    """The checksums of a file's first `size_bytes` bytes, or of all of a shorter one.

    Args:
        handle: the file, open.
        entry: what it should be.
        advance: told of the bytes as they pass.
    """
    digests, offset = Digests(entry), 0
    while offset < entry.size_bytes:
        data = os.pread(handle, min(entry.size_bytes - offset, CHUNK_BYTES), offset)
        if not data:
            break
        digests.update(data)
        advance(len(data))
        offset += len(data)
    return digests


class Verified(NamedTuple):
    """What is known of a folder's files without reading them.

    Args:
        stamps: time of the last change in nanoseconds, by file, when each was last verified.
        doubt: why that says nothing; "" where nobody but root could have written it.
    """

    stamps: Dict[str, int]
    doubt: str

    def knows(self, name: str, found: os.stat_result) -> bool:
        """Whether a file is the one that was verified: root's own, and not written to since."""
        return self.stamps.get(name) == found.st_mtime_ns and is_believable(found)


def wrong_files(host: Host, target: str, entries: List[Entry]) -> Tuple[List[str], str]:
    """What is wrong at a glance: files that are absent, of another size, or changed since they were verified.

    Returns:
        That, and why nothing is known of the rest but its size; "" where it was verified.
    """
    with open_tree(host.path(target)) as folder:
        verified = read_verified(folder)
        wrong, doubt = [], verified.doubt
        for entry in entries:
            try:
                found = folder.status(entry.name)
            except (OSError, Refused) as error:
                wrong.append("{}: {}".format(entry.name, words_of(error)))
                continue
            if found.st_size != entry.size_bytes:
                text = "{} has {} bytes, wanted {}"
                wrong.append(text.format(entry.name, found.st_size, entry.size_bytes))
            elif verified.stamps.get(entry.name, found.st_mtime_ns) != found.st_mtime_ns:
                wrong.append("{} was written to after it was verified".format(entry.name))
            elif not is_believable(found):
                doubt = doubt or NOT_ROOTS.format(os.path.join(target, entry.name))
    return wrong, doubt


def read_verified(folder: Tree) -> Verified:
    """What an earlier staging has noted of a folder; nothing that others than root could have written counts."""
    if not folder.is_roots:
        return Verified({}, NOT_ROOTS.format(folder.path))
    try:
        found = folder.status(VERIFIED)
        if not is_believable(found):
            return Verified({}, NOT_ROOTS.format(folder.at(VERIFIED)))
        listed = json.loads(folder.read(VERIFIED).decode("utf-8"))["changed_ns"]
        return Verified({str(name): int(stamp) for name, stamp in listed.items()}, "")
    except (OSError, Refused, ValueError, KeyError, TypeError, AttributeError):
        return Verified({}, "")


def write_verified(folder: Tree, names: List[str]) -> None:
    """Record that these files of a folder have just been verified."""
    stamps = {name: folder.status(name).st_mtime_ns for name in names}
    folder.replace(VERIFIED, as_json({"schema_version": 1, "changed_ns": stamps}), FILE_MODE)


def words_of(error: Exception) -> str:
    """An error of a file, without the file."""
    return str((isinstance(error, OSError) and error.strerror) or error)
