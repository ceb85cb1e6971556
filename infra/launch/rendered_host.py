"""One host of a folder that `fab render` wrote: the requests for its agent, as another tool than `fab` sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import StackError

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedHost:
    """The documents of one host.

    Args:
        name: the plan's name of the host.
        stack: `stack.json`.
        state: `host-state.json`.
        launch: `launch.json`.
    """

    name: str
    stack: Document
    state: Document
    launch: Document

    def items(self, groups: Sequence[str], *, only_needed: bool) -> list[Document]:
        """Items of the host state, in order.

        Args:
            groups: the groups that are taken.
            only_needed: whether only those are that must be as wanted before anything is installed.
        """
        needed = self.launch["needed"]
        return [
            item
            for item in self.state["items"]
            if item["group"] in groups and (not only_needed or item["id"] in needed)
        ]

    def state_request(
        self,
        mode: str,
        groups: Sequence[str],
        items: Sequence[Document],
        secrets: Mapping[str, str],
    ) -> dict[str, object]:
        """The request that `fab` sends to look at items, bring them about or take groups back."""
        return {
            "operation": "state",
            "mode": mode,
            "stack": self.stack["stack"],
            "release": self.stack["release"],
            "groups": list(groups),
            "items": [] if mode == "rollback" else list(items),
            "secrets": dict(secrets),
        }


def read_rendered(folder: Path, inventory_name: str) -> RenderedHost | None:
    """The documents of a host by its name in the inventory; None when no process of the plan is on it.

    Raises:
        StackError: the folder is not whole, or was rendered without an inventory.
    """
    stack = _document(folder / "stack.json")
    if stack["hosts"] is None:
        what = "It was rendered without an inventory: its addresses are examples."
        raise StackError(str(folder), what, "Render it again with --inventory PATH.")
    name = stack["hosts"].get(inventory_name)
    if name is None:
        return None
    return RenderedHost(
        name=name,
        stack=stack,
        state=_document(folder / name / "host-state.json"),
        launch=_document(folder / name / "launch.json"),
    )


def _document(path: Path) -> Document:
    try:
        document: Document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = f"It cannot be read: {error}."
        fix = "Render the folder again: fab render --stack NAME --inventory PATH --to DIR"
        raise StackError(str(path), what, fix) from error
    return document
