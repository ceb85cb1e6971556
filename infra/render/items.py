"""One thing that a host must hold, and all of them: the document that the agent reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1
Group = Literal["tuning", "files", "images", "weights", "firewall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a host must hold. `details` are the keys of its kind."""

    id: str
    group: Group
    kind: str
    target: str
    why: str
    details: Mapping[str, object]

    def as_document(self) -> dict[str, object]:
        """The item as the agent reads it."""
        return {
            "id": self.id,
            "group": self.group,
            "kind": self.kind,
            "target": self.target,
            **self.details,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What one host must hold, in the order in which it is brought about.

    Args:
        release: hash of the plan.
        enable: tuning items that the stack switches on beyond its profile.
    """

    stack: str
    host: str
    release: str
    items: tuple[Item, ...]
    enable: tuple[str, ...]

    def of_groups(self, *groups: Group) -> tuple[Item, ...]:
        """The items of some groups, in order."""
        return tuple(item for item in self.items if item.group in groups)

    def kinds_of(self, *groups: Group) -> list[str]:
        """The kinds of the items of some groups, each once."""
        return sorted({item.kind for item in self.of_groups(*groups)})

    def as_document(self) -> dict[str, object]:
        """The document that the agent gets."""
        return {
            "schema_version": SCHEMA_VERSION,
            "stack": self.stack,
            "host": self.host,
            "release": self.release,
            "items": [item.as_document() for item in self.items],
        }


def file_item(
    target: str, content: str, why: str, *, mode: str = "0644", unit: bool = False
) -> Item:
    """A text of ours; `unit` says that systemd reads it."""
    return Item(
        id=f"file:{target}",
        group="files",
        kind="file",
        target=target,
        why=why,
        details={"content": content, "mode": mode, **({"unit": True} if unit else {})},
    )


def link_item(target: str, to: str, why: str) -> Item:
    """A link by which systemd starts a unit of ours."""
    return Item(
        id=f"file:{target}",
        group="files",
        kind="file",
        target=target,
        why=why,
        details={"link": to, "unit": True},
    )
