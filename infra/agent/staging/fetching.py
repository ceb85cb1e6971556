"""One file of a checkpoint, from wherever it can be had, until it is right."""

import contextlib
import errno
import http.client
import os
import socket
from typing import Any, Dict, Optional, Set

from ..folders import FOLDER_MODE
from ..trees import Tree
from .choosing import Choice, Source
from .manifest import Digests, Entry, hash_file
from .transfers import Transfer
from .web import Hopeless, Unanswered

TRANSIENT = (OSError, http.client.HTTPException, Unanswered)
# The host itself: no other source would help.
OWN_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
# What is passed on at once: large enough for the CPU, small enough that a chain of hosts does not wait for it.
PIECE_BYTES = 1 << 18


class Fetcher:
    """Fetches files into a folder.

    Args:
        folder: where they grow; what an earlier run has left there is taken up.
        transfers: by file name; readers are told of every byte.
        choice: whom to ask.
    """

    def __init__(self, folder: Tree, transfers: Dict[str, Transfer], choice: Choice) -> None:
        """Begin with nothing fetched."""
        self._folder = folder
        self._transfers = transfers
        self._choice = choice

    def fetch(self, entry: Entry) -> None:
        """Bring one file here and verify it.

        Raises:
            Refused: nobody is left who has it right.
            OSError: this host cannot hold it.
        """
        transfer = self._transfers[entry.name]
        above = os.path.dirname(entry.name)
        if above:
            self._folder.folder(above, FOLDER_MODE).__exit__()
        handle = self._folder.open(entry.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with open(handle, "r+b", buffering=0) as stream:
            digests = self._resume(stream, transfer)
            givers: Set[Optional[Source]] = {None} if transfer.num_bytes else set()
            while True:
                source = self._choice.choose(entry.name)
                if transfer.num_bytes < entry.size_bytes:
                    givers.add(source)
                    if not self._receive(source, transfer, stream, digests):
                        continue
                wrong = digests.difference()
                if wrong is None:
                    break
                os.ftruncate(stream.fileno(), 0)
                transfer.begin_again()
                digests = Digests(entry)
                if givers == {source}:  # else the beginning may be what was wrong
                    self._choice.sent_wrong(source, entry.name, wrong)
                givers = set()
            os.fsync(stream.fileno())
        transfer.finish(digests.sha256, source.name)

    def _resume(self, stream: Any, transfer: Transfer) -> Digests:
        """The checksums of what an earlier run has left of a file."""
        entry = transfer.entry
        if os.fstat(stream.fileno()).st_size > entry.size_bytes:
            os.ftruncate(stream.fileno(), 0)
        return hash_file(stream.fileno(), entry, transfer.advance)

    def _receive(self, source: Source, transfer: Transfer, stream: Any, digests: Digests) -> bool:
        """Fetch from one source until the end of the file; whether that was reached."""
        buffer = memoryview(bytearray(PIECE_BYTES))
        entry, has_opened = transfer.entry, False
        try:
            with contextlib.closing(
                source.place.open_file(entry.name, transfer.num_bytes)
            ) as incoming:
                has_opened = True
                while transfer.num_bytes < entry.size_bytes:
                    left = min(entry.size_bytes - transfer.num_bytes, PIECE_BYTES)
                    count = incoming.readinto(buffer[:left])
                    if not count:
                        raise Unanswered("the connection ended in the middle of a file")
                    _write(stream, buffer[:count])
                    digests.update(buffer[:count])
                    transfer.advance(count)
                    self._choice.worked(source)
        except socket.timeout as error:
            if not (has_opened and source.is_peer):  # a peer may be waiting for its own source
                self._choice.failed(source, error, for_good=False)
        except Hopeless as error:
            self._choice.failed(source, error, for_good=True)
        except TRANSIENT as error:
            if isinstance(error, OSError) and error.errno in OWN_ERRORS:
                raise
            self._choice.failed(source, error, for_good=False)
        return transfer.num_bytes >= entry.size_bytes


def _write(stream: Any, view: memoryview) -> None:
    while view:
        count = stream.write(view)
        view = view[count:]
