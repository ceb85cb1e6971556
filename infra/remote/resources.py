"""What the connections of one run share: parsed files, loaded keys, bastions, places to open in, signs of life."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import paramiko

from infra.remote.known_hosts import KnownHosts, read_known_hosts
from infra.remote.openings import Openings
from infra.remote.signs import SIGN_S, Signs
from infra.remote.ssh_config import SshConfigFile
from infra.spec.text_file import read_bytes

T = TypeVar("T")


class Resources:
    """Everything is made once, by whoever comes first; the others wait for it.

    `openings` has the places in which connections to hosts are opened; `signs` go to commands whose output is read.
    """

    def __init__(self, sign_s: float = SIGN_S) -> None:
        """Start with nothing.

        Args:
            sign_s: seconds between two signs of life.
        """
        self.openings = Openings()
        self.signs = Signs(sign_s)
        self._guard = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._made: dict[object, object] = {}
        self._closers: list[Callable[[], None]] = []

    def once(self, kind: type[T], key: object, make: Callable[[], T]) -> T:
        """The thing of that kind and key; `make` is called when there is none yet."""
        with self._guard:
            lock = self._locks.setdefault((kind, key), threading.Lock())
        with lock:
            found = self._made.get((kind, key))
            if not isinstance(found, kind):
                found = make()
                self._made[kind, key] = found
            return found

    def ssh_config(self, path: Path) -> SshConfigFile:
        """A parsed ssh_config."""
        return self.once(SshConfigFile, path, lambda: SshConfigFile.read(path))

    def known_hosts(self, path: Path) -> KnownHosts:
        """The keys of a known_hosts file, with those that this run has added to it."""
        return self.once(KnownHosts, path, lambda: read_known_hosts(path))

    def private_key(self, path: Path) -> paramiko.PKey:
        """A loaded private key.

        Raises:
            OSError: the file cannot be read.
            paramiko.SSHException: it is not a key, or it needs a passphrase.
        """
        return self.once(paramiko.PKey, path, lambda: _read_key(path))

    def on_close(self, closer: Callable[[], None]) -> None:
        """Call this when the run is over."""
        with self._guard:
            self._closers.append(closer)

    def close(self) -> None:
        """Hang up at the bastions."""
        with self._guard:
            closers, self._closers = self._closers, []
        for closer in closers:
            closer()


def _read_key(path: Path) -> paramiko.PKey:
    """A private key; paramiko would read a file without an end, too."""
    read_bytes(path)
    return paramiko.PKey.from_path(path)
