"""Brings hosts to their tuning profile, reports drift, takes it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from infra.launch.fleet import Fleet, Request, ask_until_known, rows_of
from infra.render.host_state import HostState

TuningMode = Literal["check", "apply", "rollback"]
Rows = dict[str, list[Mapping[str, object]]]


def tune(
    fleet: Fleet,
    states: Mapping[str, HostState],
    mode: TuningMode,
    *,
    with_diff: bool,
    timeout_s: float,
) -> Rows:
    """What became of every tuning item, by host.

    Args:
        fleet: the hosts.
        states: host state by host; only its tuning is used.
        mode: look, bring about, or bring back what was found.
        with_diff: whether each row tells its difference.
        timeout_s: limit per host.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    requests: dict[str, Request] = {
        host: {
            "operation": "state",
            "mode": mode,
            "stack": state.stack,
            "release": state.release,
            "groups": ["tuning"],
            "items": []
            if mode == "rollback"
            else [item.as_document() for item in state.of_groups("tuning")],
            "diff": with_diff,
        }
        for host, state in states.items()
    }
    reports = ask_until_known(fleet, requests, timeout_s=timeout_s)
    return {host: list(rows_of(report, "items")) for host, report in reports.items()}


def tuning_document(stack: str, rows: Rows) -> dict[str, object]:
    """The document of `tune-hosts`."""
    keys = ("id", "state", "before", "wanted", "after", "why", "needs")
    changed = count_of(rows, "changed")
    failed = count_of(rows, "failed")
    return {
        "schema_version": 1,
        "stack": stack,
        "ok": failed == 0,
        "hosts": [
            {"name": host, "items": [{key: row.get(key) for key in keys} for row in items]}
            for host, items in rows.items()
        ],
        "changed": changed,
        "failed": failed,
    }


def count_of(rows: Rows, state: str) -> int:
    """How many items of all hosts ended in a state."""
    return sum(row["state"] == state for items in rows.values() for row in items)
