"""Brings hosts to their tuning profile, reports drift, takes it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.agent.kinds.grubby import LOADER_S
from infra.agent.kinds.kernel_modules import REBUILD_S
from infra.agent.kinds.nvidia import RESTART_S
from infra.catalog.host_profile import ProfileChoice
from infra.launch.fleet import Fleet, Report, Request, ask_all, ask_reached, rows_of
from infra.remote.failures import HostFailure
from infra.render.items import HostState, Item

TuningMode = Literal["check", "apply", "rollback"]
Allowance = Literal["drain", "reboot", "running"]
Rows = dict[str, list[Mapping[str, object]]]

# What one item's tools may take beyond an ordinary answer, in seconds, by kind and by what a change waits for.
TOOLS_S = {
    "module-options": REBUILD_S,
    "kernel-arguments": LOADER_S,
    "imex-nodes": RESTART_S,
}
ALLOWED_S = {"reboot": REBUILD_S + LOADER_S, "drain": RESTART_S}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOrder:
    """What is to be done about tuning.

    Args:
        mode: look, bring about, or bring back what was found.
        allow: `drain`: change what needs a drained host, where no engine runs; `running`: there too;
            `reboot`: prepare what the next boot brings.
        with_diff: whether each row tells its difference.
        timeout_s: limit per host, without the tools that an item may have to run.
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
    requests = _requests(states, order)
    return _rows(ask_all(fleet, requests, timeout_s=limit_s(states, order)))


def limit_s(states: Mapping[str, HostState], order: TuningOrder) -> float:
    """How long a host may take, in seconds: at the deadline its agent ends with every tool that still runs.

    What is taken back only the host knows, so that it may be anything that is allowed.
    """
    if order.mode == "check":
        return order.timeout_s
    if order.mode == "rollback":
        return order.timeout_s + sum(TOOLS_S.values())
    slowest = max(
        (
            sum(_tools_s(item, order) for item in state.of_groups("tuning"))
            for state in states.values()
        ),
        default=0.0,
    )
    withdrawn = sum(ALLOWED_S.get(word, 0.0) for word in order.allow)
    return order.timeout_s + max(slowest, withdrawn)


def _tools_s(item: Item, order: TuningOrder) -> float:
    """How long the tools of an item may take, 0 where it waits for what is not allowed."""
    needs = item.details.get("needs")
    is_withheld = needs in ("drain", "reboot") and needs not in order.allow
    return 0.0 if is_withheld or item.details.get("want") is None else TOOLS_S.get(item.kind, 0.0)


def tune_reached(
    fleet: Fleet, states: Mapping[str, HostState], order: TuningOrder
) -> tuple[Rows, tuple[HostFailure, ...]]:
    """As `tune`, of the hosts that can be asked, and why the others cannot: they hide nothing that was changed.

    Raises:
        HostsFailed: no host can be asked.
    """
    requests = _requests(states, order)
    reports, failures = ask_reached(fleet, requests, timeout_s=limit_s(states, order))
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
            "withdraws": True,
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
