"""Brings images to hosts, or says which are missing; what several hosts hold must be one digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.launch.deployment import Pace
from infra.launch.fleet import Fleet, ask_until_known, rows_of
from infra.render.host_state import HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOnHost:
    """One image or virtual environment on one host.

    Args:
        state: ok, changed (brought, or would be), not_applicable or failed.
        digest: what the host holds now.
    """

    id: str
    host: str
    state: str
    digest: str | None
    why: str


def bring_images(
    fleet: Fleet, states: Mapping[str, HostState], mode: Literal["check", "apply"], pace: Pace
) -> list[ImageOnHost]:
    """What became of every image; a check changes nothing.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    requests = {
        host: {
            "operation": "state",
            "mode": mode,
            "stack": state.stack,
            "release": state.release,
            "items": [item.as_document() for item in items],
        }
        for host, state in states.items()
        if (items := state.of_groups("images"))
    }
    limit_s = pace.limits.pull_s if mode == "apply" else pace.limits.ask_s
    reports = ask_until_known(fleet, requests, timeout_s=limit_s)
    return [
        ImageOnHost(
            id=str(row["id"]),
            host=host,
            state=str(row["state"]),
            digest=None if row.get("after") is None else str(row["after"]),
            why=str(row["why"]),
        )
        for host, report in reports.items()
        for row in rows_of(report, "items")
    ]


def unequal_images(images: Sequence[ImageOnHost]) -> dict[str, dict[str, list[str]]]:
    """Images of which hosts hold different digests: hosts by digest, by image."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in images:
        if one.digest is not None and one.digest.startswith("sha256:"):
            found.setdefault(one.id, {}).setdefault(one.digest, []).append(one.host)
    return {name: hosts for name, hosts in found.items() if len(hosts) > 1}
