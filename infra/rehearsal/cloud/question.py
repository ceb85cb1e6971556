"""One question to the emulated cloud, and the form of its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One invoke: the account, its region, and the arguments."""

    store: Store
    region: str
    args: Mapping[str, object]

    def text(self, name: str) -> str:
        """An argument as text, empty when it is not given."""
        return str(self.args.get(name) or "")

    def filter(self, name: str) -> tuple[str, ...]:
        """The values of one of the `filters`."""
        rows = self.args.get("filters")
        for row in rows if isinstance(rows, list) else []:
            if row.get("name") == name:
                return tuple(str(value) for value in row.get("values", ()))
        return ()


Lookup = Callable[[Question], dict[str, object]]


def missing(noun: str, name: str) -> RefusedError:
    """What a look-up says of a thing that is not there."""
    return RefusedError("NotFound", f"reading {noun} ({name}): couldn't find resource")
