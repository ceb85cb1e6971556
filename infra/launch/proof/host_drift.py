"""Whether hosts are as declared: tuning, files, images and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import HostsFailed
from infra.launch.deployment import Deployment
from infra.launch.fleet import ask_all, rows_of
from infra.launch.installation import state_request
from infra.launch.secret import Secret
from infra.render.host_state import Group

DRIFT_GROUPS: tuple[Group, ...] = ("tuning", "files", "images", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        process: the process, or the host for what concerns all of it.
        check: a capability, or the group or item of the host state.
        ok: None where it cannot be known; `detail` says why.
        is_drift: whether it is about the host rather than about serving.
    """

    process: str
    check: str
    ok: bool | None
    detail: str
    is_drift: bool

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be otherwise than it should."""
        return self.ok is False


def drift(deployment: Deployment, secrets: Mapping[str, Secret]) -> list[Check]:
    """All of every host against what is declared."""
    requests = {
        host: {
            **state_request(deployment, state.of_groups(*DRIFT_GROUPS), "check", secrets),
            "withdraws": True,
        }
        for host, state in deployment.states.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    checks: list[Check] = []
    for host, report in reports.items():
        rows = rows_of(report, "items")
        for group in DRIFT_GROUPS:
            checks += _group_checks(host, group, [row for row in rows if row.get("group") == group])
    return checks


def not_as_installed(deployment: Deployment, secrets: Mapping[str, Secret]) -> list[str]:
    """What differs on the hosts, in words; nothing where hosts cannot be asked.

    Of two processes that fight for a port or a device, it is the one that is wrong.
    """
    try:
        checks = drift(deployment, secrets)
    except HostsFailed:
        return []
    return [
        f"{check.check.removeprefix('file:')} on {check.process} ({check.detail.rpartition(': ')[2]})"
        for check in checks
        if check.is_wrong
    ]


def _group_checks(host: str, group: str, rows: Sequence[Mapping[str, object]]) -> list[Check]:
    """One line for a group that is as declared, else one per item that is not."""
    wrong = [row for row in rows if row["state"] in {"changed", "failed"}]
    if wrong:
        return [
            Check(
                process=host,
                check=str(row["id"]),
                ok=False,
                detail=f"is {row['before']}, declared {row['wanted']}: {row['why']}",
                is_drift=True,
            )
            for row in wrong
        ]
    if not rows:
        return []
    counts = Counter(str(row["state"]) for row in rows)
    detail = ", ".join(
        f"{count} {state.replace('_', ' ')}" for state, count in sorted(counts.items())
    )
    return [Check(process=host, check=group, ok=True, detail=detail, is_drift=True)]
