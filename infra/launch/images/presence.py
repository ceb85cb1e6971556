"""Brings images to hosts, or says which are missing; what several hosts hold must be one digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.errors import InfraError
from infra.launch.deployment import Pace
from infra.launch.fleet import Fleet, Report, answers_when_known, rows_of
from infra.render.items import HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOnHost:
    """One image or virtual environment on one host.

    Args:
        state: ok, changed (brought, or would be), not_applicable or failed.
        digest: what the host holds now.
        error: why the host cannot be asked, None where it can.
    """

    id: str
    host: str
    state: str
    digest: str | None
    why: str
    error: InfraError | None = None


def bring_images(
    fleet: Fleet, states: Mapping[str, HostState], mode: Literal["check", "apply"], pace: Pace
) -> list[ImageOnHost]:
    """What became of every image; a check changes nothing. On a host that cannot be asked each has failed."""
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
    answers = answers_when_known(fleet, requests, timeout_s=limit_s)
    return [
        one
        for host, answer in answers.items()
        for one in (
            _failed(states[host], answer) if isinstance(answer, InfraError) else _told(host, answer)
        )
    ]


def _failed(state: HostState, error: InfraError) -> list[ImageOnHost]:
    """Every image of a host that does not say what became of it."""
    return [
        ImageOnHost(
            id=item.id, host=state.host, state="failed", digest=None, why=error.what, error=error
        )
        for item in state.of_groups("images")
    ]


def _told(host: str, report: Report) -> list[ImageOnHost]:
    return [
        ImageOnHost(
            id=str(row["id"]),
            host=host,
            state=str(row["state"]),
            digest=None if row.get("after") is None else str(row["after"]),
            why=str(row["why"]),
        )
        for row in rows_of(report, "items")
    ]


def unequal_images(images: Sequence[ImageOnHost]) -> dict[str, dict[str, list[str]]]:
    """Images of which hosts hold different digests: hosts by digest, by image."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in images:
        if one.digest is not None and one.digest.startswith("sha256:"):
            found.setdefault(one.id, {}).setdefault(one.digest, []).append(one.host)
    return {name: hosts for name, hosts in found.items() if len(hosts) > 1}
