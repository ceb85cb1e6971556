"""Mounts of a foreign file as mounts of a plan: host paths as the kernel takes them; what is no host's is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from infra.catalog.schema import Mount
from infra.plan.foreign.source import ForeignMount, Launch, NotUnderstood
from infra.plan.grammar import VOLUME, shown
from infra.plan.host_mounts import normal_path

# What only the caller of a script, or of Compose, can say: a variable that is not settled, a home, a folder of theirs.
_CALLERS = re.compile(r"[~.]|.*\$")
_DOCKER_VOLUME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")


def plan_mounts(mounts: Sequence[ForeignMount]) -> tuple[Mount, ...]:
    """The mounts that are the plan's: host paths, and volumes of a cluster."""
    return tuple(
        Mount(source=_normal(each.source), target=_normal(each.target), read_only=each.read_only)
        for each in mounts
        if not _is_left_out(each)
    )


def left_out(launches: Iterable[Launch]) -> Iterator[NotUnderstood]:
    """Mounts of a file that did not become part of the plan; a runtime's own volumes are no host's, and not told."""
    for launch in launches:
        for each in launch.container.mounts if launch.container else ():
            if _is_left_out(each) and not _DOCKER_VOLUME.fullmatch(each.source):
                text = f"mount {shown(each.source)} on {shown(each.target)}"
                why = "where it lies is the caller's: left out of the plan"
                yield NotUnderstood(each.line, text, why)


def mount_line(source: str, launch: Launch) -> int:
    """Where a file says that a process is shown a path of its host."""
    mounts = launch.container.mounts if launch.container else ()
    found = (each.line for each in mounts if _normal(each.source) == source)
    return next(found, launch.line)


def _is_left_out(mount: ForeignMount) -> bool:
    if VOLUME.fullmatch(mount.source):
        return False
    is_callers = _CALLERS.match(mount.source) or _CALLERS.match(mount.target)
    return bool(is_callers or _DOCKER_VOLUME.fullmatch(mount.source))


def _normal(path: str) -> str:
    """A host's path in its one spelling; what is none stays, for the gate to refuse."""
    return normal_path(path) if path.startswith("/") else path
