"""`release.json`: what `up` put on a host, for `down`, `status` and `logs` to act on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.errors import HostsFailed
from infra.plan.process import Plan, Process
from infra.render.host_paths import cleanup_unit, release_path, unit_name

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProcess:
    """A process as its host remembers it.

    Args:
        ports: every port that it binds; () in records of before ports were written down.
    """

    id: str
    unit: str
    kind: str
    group: str
    role: str
    endpoint: str | None
    devices: tuple[int, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What `up` put on one host.

    Args:
        release: hash of the plan.
        cleanup: the unit that removes its containers, None without containers.
        is_closed: whether its plan closes the host.
    """

    stack: str
    release: str
    cleanup: str | None
    processes: tuple[RecordedProcess, ...]
    is_closed: bool = False


def release_record(plan: Plan, processes: Sequence[Process], *, has_containers: bool) -> str:
    """The record of one host, as text."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "release": plan.hash,
        "model": plan.model,
        "engine": {
            "name": plan.engine.name,
            "version": plan.engine.version,
            "image": plan.engine.image,
        },
        "cleanup": cleanup_unit(plan.stack) if has_containers else None,
        **({"closed": True} if plan.firewall is not None else {}),
        "processes": [
            {
                "id": process.id,
                "unit": unit_name(plan.stack, process),
                "kind": process.kind,
                "group": process.group,
                "role": process.role,
                "endpoint": process.endpoint,
                "devices": list(process.devices),
                "ports": [[bind.port, bind.count] for bind in process.binds],
            }
            for process in processes
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def read_release(host: str, stack: str, text: str) -> Release:
    """A record read back.

    Raises:
        HostsFailed: it is damaged.
    """
    try:
        document = json.loads(text)
        return Release(
            stack=str(document["stack"]),
            release=str(document["release"]),
            cleanup=_text(document, "cleanup"),
            processes=tuple(_process(row) for row in document["processes"]),
            is_closed=document.get("closed") is True,
        )
    except (ValueError, KeyError, TypeError) as error:
        where = f"{host}:{release_path(stack)}"
        fix = f"Stop the units moe-{stack}-* there by hand, then remove the folder."
        raise HostsFailed(where, f"The record cannot be read: {error!r}.", fix) from error


def _process(row: Mapping[str, object]) -> RecordedProcess:
    devices = row["devices"]
    return RecordedProcess(
        id=str(row["id"]),
        unit=str(row["unit"]),
        kind=str(row["kind"]),
        group=str(row["group"]),
        role=str(row["role"]),
        endpoint=_text(row, "endpoint"),
        devices=tuple(int(index) for index in devices) if isinstance(devices, list) else (),
        ports=tuple(_ports(row.get("ports"))),
    )


def _ports(runs: object) -> Iterator[int]:
    for first, count in runs if isinstance(runs, list) else ():
        yield from range(int(first), int(first) + int(count))


def _text(row: Mapping[str, object], key: str) -> str | None:
    value = row[key]
    return None if value is None else str(value)
