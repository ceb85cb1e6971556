"""Where hosts of one inventory take images from: a mirror, or an archive on each host."""

from __future__ import annotations

from dataclasses import replace

from infra.inventory.hosts import InventoryHost
from infra.render.items import HostState


def with_image_origin(state: HostState, host: InventoryHost) -> HostState:
    """A host's state with the mirror or archive that its inventory entry names for images."""
    origin = {"mirror": host.image_mirror, "archive": host.image_archive}
    named = {key: value for key, value in origin.items() if value is not None}
    if not named:
        return state
    items = tuple(
        replace(item, details={**item.details, **named}) if item.kind == "image" else item
        for item in state.items
    )
    return replace(state, items=items)
