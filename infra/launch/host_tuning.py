"""Brings hosts to their tuning profile, reports drift, takes it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.catalog.host_profile import ProfileChoice
from infra.launch.fleet import Fleet, Report, Request, ask_reached, ask_until_known, rows_of
from infra.remote.failures import HostFailure
from infra.render.host_state import HostState

TuningMode = Literal["check", "apply", "rollback"]
Allowance = Literal["drain", "reboot", "running"]
Rows = dict[str, list[Mapping[str, object]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOrder:
    """What is to be done about tuning.

    Args:
        mode: look, bring about, or bring back what was found.
        allow: `drain`: change what needs a drained host, where no engine runs; `running`: there too;
            `reboot`: prepare what the next boot brings.
        with_diff: whether each row tells its difference.
        timeout_s: limit per host.
    """

    mode: TuningMode
    allow: tuple[Allowance, ...] = ()
    with_diff: bool = False
    timeout_s: float


def tune(fleet: Fleet, states: Mapping[str, HostState], order: TuningOrder) -> Rows:
    """What became of every tuning item, by host.

    Args:
        fleet: the hosts.
        states: host state by host; only its tuning is used.
        order: what is to be done.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    return _rows(ask_until_known(fleet, _requests(states, order), timeout_s=order.timeout_s))


def tune_reached(
    fleet: Fleet, states: Mapping[str, HostState], order: TuningOrder
) -> tuple[Rows, tuple[HostFailure, ...]]:
    """As `tune`, of the hosts that can be asked, and why the others cannot: they hide nothing that was changed.

    Raises:
        HostsFailed: no host can be asked.
    """
    requests = _requests(states, order)
    reports, failures = ask_reached(fleet, requests, timeout_s=order.timeout_s)
    return _rows(reports), failures


def _requests(states: Mapping[str, HostState], order: TuningOrder) -> dict[str, Request]:
    return {
        host: {
            "operation": "state",
            "mode": order.mode,
            "stack": state.stack,
            "release": state.release,
            "groups": ["tuning"],
            "items": []
            if order.mode == "rollback"
            else [item.as_document() for item in state.of_groups("tuning")],
            "diff": order.with_diff,
            "allow": [*order.allow, *(["daemon-reload"] if "running" in order.allow else [])],
        }
        for host, state in states.items()
    }


def _rows(reports: Mapping[str, Report]) -> Rows:
    return {host: list(rows_of(report, "items")) for host, report in reports.items()}


def tuning_document(
    stack: str | None, rows: Rows, profiles: Mapping[str, ProfileChoice], *, only_checked: bool
) -> dict[str, object]:
    """The document of `tune-hosts`, of the hosts that could be asked.

    Args:
        stack: None when hosts were named on the command line.
        rows: by host.
        profiles: by host; none for a rollback, which needs no profile.
        only_checked: whether `changed` says what would change: that is drift, and not `ok`.
    """
    keys = ("id", "state", "before", "wanted", "after", "why", "needs")
    changed = count_of(rows, "changed")
    failed = count_of(rows, "failed")
    return {
        "schema_version": 1,
        "stack": stack,
        "ok": failed == 0 and not (only_checked and changed),
        "hosts": [
            {
                "name": host,
                "profile": profiles[host].profile if host in profiles else None,
                "profile_why": profiles[host].why if host in profiles else None,
                "items": [{key: row.get(key) for key in keys} for row in items],
            }
            for host, items in rows.items()
        ],
        "changed": changed,
        "failed": failed,
    }


def count_of(rows: Rows, state: str) -> int:
    """How many items of all hosts ended in a state."""
    return sum(row["state"] == state for items in rows.values() for row in items)
