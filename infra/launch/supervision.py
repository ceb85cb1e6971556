"""Groups as their hosts' watchers have them: handed over, taken back, looked at. docs/decisions.md 21."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.launch.fleet import Fleet, Report, ask_all, rows_of
from infra.launch.secret import Secret

Action = Literal["arm", "disarm", "forget", "hold", "leave-out", "restart", "status"]
RUNS, FAILED, STOPS, MEETS = "run", "failed", "stop", "adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group as the host of rank 0 has it.

    Args:
        group: `prefill/0`.
        epoch: the number of its latest start.
        phase: `adopt` (handed over, not all hosts have met), `run`, `stop` (between two epochs) or `failed`.
        restarts: how often it was restarted by itself since `up` handed it over.
        why: what ended the epoch before, "" for nothing.
        waits_for: what keeps the next epoch from beginning.
        pause_s: how long after the end of the latest epoch the next one may begin, None where that is not known.
        unmet: hosts whose watcher has not been heard of.
        left_out: the router was told to send it nothing.
    """

    group: str
    epoch: int
    phase: str
    restarts: int
    why: str
    waits_for: tuple[str, ...]
    pause_s: float | None
    unmet: tuple[str, ...]
    left_out: bool

    @property
    def words(self) -> str:
        """What an operator should know, "" while it runs as it was started."""
        told = [self._told_phase()] if self._told_phase() else []
        if self.left_out:
            told.append(
                "the router leaves it out until `fab up` or `fab restart` has it taken back"
            )
        return "; ".join(told)

    def _told_phase(self) -> str:
        if self.phase == RUNS:
            return self._told_why() if self.why else ""
        if self.phase == MEETS:
            return f"not watched yet: {', '.join(self.unmet) or 'its hosts'} must be heard of"
        if self.phase == FAILED:
            return self.why
        waits = f"; it waits for {', '.join(self.waits_for)}" if self.waits_for else ""
        return f"restarts ({self.why}){waits}"

    def _told_why(self) -> str:
        if not self.restarts:
            return f"started anew: {self.why}"
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return f"restarted {times}; the last time: {self.why}"

    def as_document(self) -> dict[str, object]:
        """One row of `groups` in `status --json`."""
        return {
            "group": self.group,
            "epoch": self.epoch,
            "state": self.phase,
            "restarts": self.restarts,
            "why": self.why,
            "waits_for": list(self.waits_for),
            "left_out": self.left_out,
        }


def groups_request(
    action: Action, stack: str, groups: Sequence[str] = (), operator: str = ""
) -> dict[str, object]:
    """A request to a host's watcher.

    Args:
        action: what to do.
        stack: its name.
        groups: which ones, for a restart.
        operator: who asks for it.
    """
    return {
        "operation": "groups",
        "action": action,
        "stack": stack,
        "groups": list(groups),
        "operator": operator,
    }


def tell_watchers(
    fleet: Fleet, hosts: Iterable[str], action: Action, stack: str, *, timeout_s: float
) -> dict[str, Report]:
    """Have the watchers of hosts end, or hold, all at the same time.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    request = groups_request(action, stack)
    return ask_all(fleet, dict.fromkeys(hosts, request), timeout_s=timeout_s)


def arm_request(stack: str, key: Secret) -> dict[str, object]:
    """A request that hands a host's groups to its watcher.

    Args:
        stack: its name.
        key: one for all hosts. A host whose watcher was handed its groups before keeps the key that it speaks with.
    """
    return {**groups_request("arm", stack), "key": key.reveal()}


def new_watch_key() -> Secret:
    """A key for the watchers of one hand-over, as the agent takes it (agent/group/channel.py)."""
    return Secret(secrets.token_hex(32))


def watch_keys(reports: Mapping[str, Report]) -> dict[str, str]:
    """What tells the keys of watched hosts apart, by host; "" for a host without a key."""
    return {
        host: str(watch.get("key") or "")
        for host, report in reports.items()
        if isinstance(watch := report.get("watch"), Mapping) and _watches(watch)
    }


def read_groups(reports: Iterable[Report]) -> dict[str, GroupState]:
    """Every group whose host of rank 0 is among those that reported, by name."""
    listed = list(reports)
    left_out = {name for report in listed for name in _texts(report.get("left_out"))}
    found: dict[str, GroupState] = {}
    for report in listed:
        for row in rows_of(report, "groups"):
            if row.get("leads"):
                state = _state(row, left_out)
                found[state.group] = state
    return found


def router_ends(reports: Iterable[Report]) -> dict[str, str]:
    """How the latest start of each router that ended did so, by process."""
    views = [report.get("router") for report in reports]
    return {
        str(view["process"]): str(view["why"])
        for view in views
        if isinstance(view, Mapping) and "process" in view and "why" in view
    }


def would_restart(*, is_watched: bool | None, group: GroupState | None) -> bool:
    """Whether a rank that ends is started again: its host's watcher was handed it, and those of its group have met.

    Args:
        is_watched: whether its host is one of `watched_hosts`; None where that cannot be asked, which says nothing.
        group: its group, None where no host of rank 0 tells of it.
    """
    return is_watched is not False and not (group is not None and group.phase == MEETS)


def led_elsewhere(report: Report) -> set[str]:
    """The groups that a host remembers, and of which another host counts the epochs."""
    return {str(row["group"]) for row in rows_of(report, "groups") if not row.get("leads")}


def watched_hosts(reports: Mapping[str, Report]) -> set[str]:
    """The hosts whose watcher runs and has been handed their groups; one that stands by watches nothing."""
    return {host for host, report in reports.items() if _watches(report.get("watch"))}


def holding_hosts(reports: Mapping[str, Report]) -> set[str]:
    """The hosts whose watcher would act on what it remembers of before.

    It is enabled, stopped or not, or has not been made to hand a group back: a fresh start of it would be
    somebody else's.
    """
    return {
        host
        for host, report in reports.items()
        if _is_enabled(report.get("watch"))
        or any(not row.get("adopting") for row in rows_of(report, "groups"))
    }


def _is_enabled(watch: object) -> bool:
    return isinstance(watch, Mapping) and bool(watch.get("enabled"))


def _watches(watch: object) -> bool:
    return isinstance(watch, Mapping) and bool(watch.get("active")) and bool(watch.get("enabled"))


def _state(row: Mapping[str, object], left_out: set[str]) -> GroupState:
    pause = row.get("pause_s")
    return GroupState(
        group=str(row["group"]),
        epoch=int(str(row["epoch"])),
        phase=str(row["phase"]),
        restarts=int(str(row["restarts"])),
        why=str(row["why"]),
        waits_for=_texts(row.get("waits_for")),
        pause_s=pause if isinstance(pause, int | float) else None,
        unmet=_texts(row.get("unmet")),
        left_out=str(row["group"]) in left_out,
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
