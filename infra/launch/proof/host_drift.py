"""Whether hosts are as declared: tuning, files, images and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from infra.errors import HostsFailed
from infra.launch.deployment import Deployment
from infra.launch.fleet import ask_all, rows_of
from infra.launch.installation import state_request
from infra.launch.replacement import of_no_process
from infra.launch.secret import Secret
from infra.render.items import Group

DRIFT_GROUPS: tuple[Group, ...] = ("tuning", "files", "images", "weights", "firewall")
# What puts a difference right: a start anew, staging, a mount that somebody makes, or tuning: at once, on a drained
# host, or with a reboot. A rank that runs and gives no answer: a restart of its group. Rules: loading them beneath
# what serves.
# What is read anew, or read at the next start alone: `up`, and nothing that serves is stopped.
Mend = Literal["start", "stage", "mount", "tune", "drain", "reboot", "restart", "close", "renew"]
EDGE_PROGRAM = "program:haproxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        process: the process, or the host for what concerns all of it.
        check: a capability, or the group or item of the host state.
        ok: None where it cannot be known, or where the host never was as declared and waits or refuses; `detail`
            says why.
        is_drift: whether it is about the host rather than about serving.
        mend: what puts it right; nearly everything is put right where it is started.
    """

    process: str
    check: str
    ok: bool | None
    detail: str
    is_drift: bool
    mend: Mend = "start"

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
    beside = {*of_no_process(deployment.plan.stack), EDGE_PROGRAM}
    for host, report in reports.items():
        rows = rows_of(report, "items")
        for group in DRIFT_GROUPS:
            of_group = [row for row in rows if row.get("group") == group]
            checks += _group_checks(host, group, of_group, beside)
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


def _group_checks(
    host: str, group: str, rows: Sequence[Mapping[str, object]], beside: AbstractSet[str]
) -> list[Check]:
    """A line for each item that is not as declared; where none of them is drift, one for the group before them.

    Args:
        host: whose items they are.
        group: of the host state.
        rows: the agent's answer for the group.
        beside: ids of what `up` puts right beside processes that run.
    """
    waits = any(row["state"] == "blocked" and _verdict(row)[0] is False for row in rows)
    told = [
        Check(
            process=host,
            check=str(row["id"]),
            ok=ok,
            detail=f"{_difference(row)}: {why}",
            is_drift=True,
            mend="renew" if row["id"] in beside else _mend(row),
        )
        for row in rows
        for ok, why in [_verdict(row)]
        if ok is not True and not (waits and _is_as_left(row))
    ]
    if not rows or any(check.is_wrong for check in told):
        return told
    counts = Counter(str(row["state"]) for row in rows)
    detail = ", ".join(
        f"{count} {state.replace('_', ' ')}" for state, count in sorted(counts.items())
    )
    return [Check(process=host, check=group, ok=True, detail=detail, is_drift=True), *told]


def _difference(row: Mapping[str, object]) -> str:
    """What there is and what should be; of a secret that is another one no more is known than that."""
    if row["before"] is None:
        return f"is not there, declared {row['wanted']}"
    if row["before"] == row["wanted"] and str(row["before"]).startswith("secret "):
        return "is not what the stack declares (its value is not shown)"
    return f"is {row['before']}, declared {row['wanted']}"


def _verdict(row: Mapping[str, object]) -> tuple[bool | None, str]:
    """Whether an item is as declared, and why not.

    None of tuning that the host never had: it waits for a drain or a reboot that nobody has allowed, the host refuses
    it, or refused it when it was last written and is as it was then (`agent/state/outcomes.py`).
    """
    state, why, last = row["state"], str(row["why"]), _last(row)
    if last.get("wanted") != row["wanted"]:
        last = {}
    if state not in {"changed", "failed", "blocked"}:
        return True, why
    if row.get("group") != "tuning" or state == "failed":
        return False, why
    if state == "blocked":
        return (False if last.get("state") == "ok" else None), why
    if last.get("state") == "blocked" and last.get("after") == row["before"]:
        return None, f"`fab tune-hosts` could not bring it about: {last.get('why')}"
    return False, why


def _is_as_left(row: Mapping[str, object]) -> bool:
    """Whether it is a file for the next boot, as the last apply has written it.

    What waits for a drain is never left to the next boot, so that its loss has other files wanted: no second loss.
    """
    last = _last(row)
    is_ours = row.get("group") == "tuning" and str(row["id"]).startswith("file:")
    return is_ours and last.get("state") == "ok" and last["wanted"] == row["before"]


def _last(row: Mapping[str, object]) -> Mapping[str, object]:
    """How the item ended in the last apply, {} where that is not known."""
    last = row.get("last")
    return last if isinstance(last, Mapping) else {}


def _mend(row: Mapping[str, object]) -> Mend:
    if row.get("group") == "weights":
        return "stage"
    if row.get("group") == "firewall":
        return "close"
    if row.get("group") != "tuning":
        return "start"
    if row["state"] == "blocked" and row.get("needs") == "drain":
        return "drain"
    return "reboot" if row["state"] == "blocked" and row.get("needs") == "reboot" else "tune"
