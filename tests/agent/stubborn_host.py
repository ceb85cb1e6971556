"""A host below a folder, whose knobs can refuse a write or silently keep their value."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from infra.agent.conversation import answer
from infra.agent.host import Host


class StubbornHost(Host):
    """Files below a folder.

    Args:
        root: the folder.
        faults: by knob, the name of an errno (`EINVAL`), or `sticky`: the write is accepted in vain.
    """

    def __init__(self, root: Path, faults: Mapping[str, str] | None = None) -> None:
        super().__init__(str(root))
        self.faults = dict(faults or {})
        self.writes: list[str] = []

    def write_knob(self, absolute: str, value: str) -> None:
        self.writes.append(absolute)
        fault = self.faults.get(absolute)
        if fault is None:
            super().write_knob(absolute, value)
        elif fault != "sticky":
            number = getattr(errno, fault)
            raise OSError(number, os.strerror(number), absolute)

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> Path:
        """Lay a file there."""
        place = Path(self.path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        place.chmod(mode)
        return place

    def ask(self, operation: str, **keys: object) -> dict[str, object]:
        """The report of one request."""
        return answer({"schema_version": 1, "operation": operation, **keys}, self)

    def state(
        self, mode: str, items: list[dict[str, object]], **keys: object
    ) -> dict[str, dict[str, object]]:
        """The rows of a `state` request by id."""
        report = self.ask("state", mode=mode, stack="s", items=items, **keys)
        rows = report.get("items")
        assert isinstance(rows, list), report
        return {row["id"]: row for row in rows}

    def contents(self, *ignored: str) -> dict[str, bytes | str]:
        """Every file below the root with its content, links with their target, folders with nothing."""
        found: dict[str, bytes | str] = {}
        for place in sorted(Path(self.root).rglob("*")):
            name = str(place)[len(self.root) :]
            if any(name.startswith(prefix) for prefix in ignored):
                continue
            if place.is_symlink():
                found[name] = str(place.readlink())
            else:
                found[name] = place.read_bytes() if place.is_file() else b""
        return found


def program(folder: Path, name: str, text: str) -> None:
    """A stand-in program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
