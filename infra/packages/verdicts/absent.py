"""Packages that an image has and a scratch environment has not: kernels, and what only they are needed for."""

from __future__ import annotations

import importlib.machinery
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any

from infra.packages.standins import Finder


class AbsentFinder(Finder):
    """Finds stand-ins for some packages, and nothing else."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take the top-level names of the packages."""
        super().__init__((), ())
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec of a stand-in for a package that is not here."""
        del path
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)


def stand_in_for(*names: str) -> None:
    """Let packages be imported that are not installed."""
    sys.meta_path.insert(0, AbsentFinder(names))


def bind_anywhere() -> None:
    """Let every port of every address be free; a number that cannot be a port is still refused."""
    sockets: Any = socket.socket
    bind = sockets.bind

    def bind_free(self: Any, address: Any) -> None:
        is_port = isinstance(address, tuple) and 0 <= address[1] < 1 << 16
        here = "::1" if self.family == socket.AF_INET6 else "127.0.0.1"
        bind(self, (here, 0) if is_port else address)

    sockets.bind = bind_free
