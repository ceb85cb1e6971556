"""The files in a host's part of the evidence: whatever the host has sent, bounded, and under names that are names."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

# Of one host. Twenty thousand lines of a rank's journal are some megabytes, and a host has a dozen ranks.
MAX_PART_BYTES = 1 << 28
MAX_UNPACKED_BYTES = 1 << 29
MAX_FILE_BYTES = 1 << 26
MAX_FILES = 20_000
# Of what stands before a file with a long name.
_MAX_HEADER_BYTES = 1 << 16
_MAX_DEPTH, _MAX_NAME = 12, 200
_ODD = re.compile(r"[^A-Za-z0-9._@:+=,~-]")


def read_part(part: Path) -> Iterator[tuple[str, bytes]]:
    """The regular files of a part by their names, as far as they came; links, devices and odd names are left out.

    Args:
        part: the archive that a host has sent.
    """
    num_files = 0
    try:
        with (
            gzip.open(part) as unpacked,
            tarfile.open(fileobj=_Bounded(unpacked), mode="r|", tarinfo=_Header) as files,
        ):
            for member in files:
                num_files += 1
                if num_files > MAX_FILES:
                    return
                name = safe_name(member.name)
                content = (
                    files.extractfile(member) if member.isreg() and member.sparse is None else None
                )
                if content is not None and name:
                    yield name, content.read(MAX_FILE_BYTES)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error):
        return  # it broke off here; the summary says so


def safe_name(name: str) -> str:
    """A name of a host as one below a folder, "" where it leads out of the folder or is longer than any."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or len(parts) > _MAX_DEPTH:
        return ""
    kept = [_ODD.sub("_", part)[:_MAX_NAME] for part in parts if part not in ("", ".")]
    return "/".join(kept)


class _Header(tarfile.TarInfo):
    """The head of a file; one that would have the reader keep what it announces is refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The head, as far as it is one that is read."""
        head = super().frombuf(buf, encoding, errors)
        if head.size < 0 or (not head.isreg() and head.size > _MAX_HEADER_BYTES):
            message = f"a head of {head.size} bytes"
            raise tarfile.ReadError(message)
        return head


class _Bounded(io.RawIOBase):
    """A stream that ends where nobody reads on: what is packed well may unpack to any size."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        super().__init__()
        self._stream = stream
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes.

        Raises:
            EOFError: more than `MAX_UNPACKED_BYTES` have been read.
        """
        piece = self._stream.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(piece)
        if size and not self._left:
            raise EOFError
        return piece
