"""What a task of another tool than `fab` does on one host of a rendered folder, and what it tells.

`ansible/action_plugins/moe_agent.py` lends the connection; the work is that of `tune-hosts`, `up` and `status`.
Each operation returns the result of a task.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from infra.errors import PrerequisiteError
from infra.launch.closing import waiting_hosts
from infra.launch.deployment import Deployment, client_of
from infra.launch.fleet import Clock, Report, Request, ask_all, rows_of
from infra.launch.handover import hand_over, hold_watchers, take_back
from infra.launch.host_tuning import Allowance, TuningOrder, tune
from infra.launch.installation import (
    Judged,
    apply_state,
    changes_under_watchers,
    judge_hosts,
    make_way,
    state_request,
)
from infra.launch.lease import Owner, is_dead, lease_document, owner_of
from infra.launch.observation import UNKNOWN, ProcessStatus, observe
from infra.launch.proof.router import ask_through
from infra.launch.readiness import Readiness
from infra.launch.rendered.host import Ask, OneHost, RenderedHost, deployment_on, part_of
from infra.launch.rendered.words import state_result
from infra.launch.secret import Secret, revealed
from infra.launch.unit_states import (
    WAITING,
    UnitState,
    read_units,
    units_request,
    why_ended,
)
from infra.plan.process import ProcessKind
from infra.remote.failures import LeaseHeld
from infra.spec.edge_keys import as_hosts_get_them

Result = dict[str, Any]

# One task of waiting lasts a quarter of what has been waited so far, within these limits. Between two of them all
# hosts are compared, so that a process that has ended on one host ends the wait on all.
ROUND_SHARE, SHORTEST_ROUND_S, LONGEST_ROUND_S = 0.25, 8.0, 60.0
POLL_S = 0.5
LOG_LINES = 60
RUNNING = ("active", "activating", "reloading", WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a task asks for.

    Args:
        operation: a key of `OPERATIONS`.
        mode: of `tune`: bring about, or bring back what was found.
        allow: of `tune`: what may be done that would else be left, see `TuningOrder`.
        kind: of `start`, `ready` and `prove`: the units that are meant.
        lease: the command that holds the stack's lease; None without one.
        since: `at` of the task that started what is awaited.
        ready_s: how long after that everything must be ready.
        checks: whether nothing may be changed.
        diff: whether differences are told.
    """

    operation: str
    mode: Literal["apply", "rollback"]
    allow: Sequence[Allowance]
    kind: ProcessKind
    lease: str | None
    since: float | None
    ready_s: float
    checks: bool
    diff: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAtWork:
    """A host, and what is needed to work on it.

    Args:
        ask: sends a request over the tool's own connection.
        secrets: the values of the stack's secrets as the operator has them, read when they are needed.
        watch_key: of this run's hand-over, the same for every host; read when it is needed.
        say: where a line about the work goes.
        clock: the same for every task of a run.
    """

    host: RenderedHost
    ask: Ask
    secrets: Callable[[], Mapping[str, Secret]]
    watch_key: Callable[[], Secret]
    say: Callable[[str], None]
    clock: Clock

    def fleet(self, wish: Wish) -> OneHost:
        """The host as a fleet: requests tell differences when they are wanted, and hold the lease that is named."""

        def ask(request: Request, *, timeout_s: float) -> Report:
            wanted = {"diff": wish.diff} if request["operation"] == "state" else {}
            return self._ask_leased(wish, {**request, **wanted}, timeout_s)

        return OneHost(self.host.state.host, ask)

    def deployment(self, fleet: OneHost) -> Deployment:
        """The deployment, of which this host can be asked."""
        return deployment_on(self.host, fleet, self.clock, self.say)

    def hosts_secrets(self) -> dict[str, Secret]:
        """The secrets as hosts get them."""
        found = as_hosts_get_them(revealed(self.secrets()))
        return {name: Secret(value) for name, value in found.items()}

    def lease(self, command: str, owner: Owner) -> dict[str, object]:
        """The lease of this run: every task of it knows the same token."""
        whose = f"{owner.machine} {owner.process} {owner.started}"
        token = hashlib.sha256(whose.encode()).hexdigest()[:16]
        return lease_document(self.host.plan.stack, token, owner, command)

    def _ask_leased(self, wish: Wish, request: Request, timeout_s: float) -> Report:
        if wish.lease is None or wish.checks:
            return self.ask(request, timeout_s=timeout_s)
        owner = run_of_this_task()
        lease = self.lease(wish.lease, owner)
        try:
            return self.ask({**request, "lease": lease}, timeout_s=timeout_s)
        except LeaseHeld as error:
            if not is_dead(error.holder, owner):
                raise
            lease["takes"] = error.holder.get("token")
            return self.ask({**request, "lease": lease}, timeout_s=timeout_s)


def run_of_this_task() -> Owner:
    """The process that a task works for: Ansible forks for every one."""
    return owner_of(os.getppid())


def tune_host(work: HostAtWork, wish: Wish) -> Result:
    """Bring the host to its tuning profile, as `fab tune-hosts` does."""
    if wish.checks and wish.mode == "rollback":
        return {"skipped": True, "msg": "What a rollback brings back is not told beforehand."}
    state, fleet = work.host.state, work.fleet(wish)
    order = TuningOrder(
        mode="check" if wish.checks else wish.mode,
        allow=tuple(wish.allow),
        with_diff=wish.diff,
        timeout_s=work.deployment(fleet).limits.ask_s,
    )
    rows = tune(fleet, {state.host: state}, order)
    return state_result(rows[state.host], checks=wish.checks)


def look_at_host(work: HostAtWork, wish: Wish) -> Result:
    """Refuse what `fab up` refuses; tell which engines run here and which do not, and whether files are to change.

    `watched` tells hosts apart whose watchers do not understand each other: before a hand-over all are taken back.
    """
    deployment = part_of(work.deployment(work.fleet(wish)))
    judged = judge_hosts(deployment, work.hosts_secrets(), tunes=False, replaces=False, gate=None)
    _refuse_open(deployment, judged)
    engines = [process.id for process in deployment.engines()]
    return {
        "running": [process for process in engines if process in judged.running],
        "ended": [process for process in engines if process not in judged.running],
        "changes_under_watchers": changes_under_watchers(deployment, judged),
        **({"watched": judged.look.keys.get(work.host.state.host, "")} if engines else {}),
    }


def hold_host(work: HostAtWork, wish: Wish) -> Result:
    """Have the host's watcher act no more, and still be heard by those of other hosts."""
    if not wish.checks:
        hold_watchers(part_of(work.deployment(work.fleet(wish))))
    return {}


def take_host_back(work: HostAtWork, wish: Wish) -> Result:
    """End the host's watcher: it takes over what runs when it is handed it again."""
    if not wish.checks:
        take_back(part_of(work.deployment(work.fleet(wish))))
    return {}


def install_on_host(work: HostAtWork, wish: Wish) -> Result:
    """Bring the host to its files and images, as `fab up` does."""
    fleet = work.fleet(wish)
    deployment, secrets = work.deployment(fleet), work.hosts_secrets()
    if wish.checks:
        items = work.host.state.of_groups("files", "images")
        request = {**state_request(deployment, items, "check", secrets), "prunes": True}
        ask_all(fleet, {fleet.name: request}, timeout_s=deployment.limits.ask_s)
    else:
        here = part_of(deployment)
        judged = judge_hosts(here, secrets, tunes=False, replaces=False, gate=None)
        _refuse_open(here, judged)
        make_way(here, judged)
        apply_state(deployment, judged, secrets, tunes=False)
    return state_result(rows_of(fleet.reports[-1], "items"), checks=wish.checks)


def _refuse_open(deployment: Deployment, judged: Judged) -> None:
    """Refuse a host that its plan closes and that is not closed yet: nobody here could get in anew to prove it.

    Raises:
        PrerequisiteError: it is one.
    """
    waiting = waiting_hosts(deployment, judged.found)
    if waiting:
        what = "Its plan closes this host, and only `fab` tries on a new connection whether it still gets in."
        fix = f"Run `fab up --stack {deployment.plan.stack}` once, which closes it; from then on this play goes on."
        raise PrerequisiteError(", ".join(waiting), what, fix)


def start_units(work: HostAtWork, wish: Wish) -> Result:
    """Start the units that do not run, all at once; no watcher interferes until `watch`."""
    fleet = work.fleet(wish)
    deployment = work.deployment(fleet)
    states = _unit_states(deployment, fleet, wish, log_lines=0)
    names = [state.unit for state in states.values() if not state.is_running]
    # an edge that runs reads its keys and certificate anew
    asked = [state.unit for state in states.values()] if wish.kind == "edge" else names
    if asked and not wish.checks:
        if wish.kind == "engine":
            take_back(part_of(deployment))
        request = units_request("renew" if wish.kind == "edge" else "start", asked)
        reports = ask_all(fleet, {fleet.name: request}, timeout_s=deployment.limits.ask_s)
        if message := reports[fleet.name].get("message"):
            return {"failed": True, "msg": f"systemctl start: {message}"}
    return {"changed": bool(names), "started": names, "at": work.clock.now()}


def await_units(work: HostAtWork, wish: Wish) -> Result:
    """Wait a round for what `fab status` calls ready; fails when a process has ended.

    The result's `ready` says whether all are; `silent` names those that are not. The leader of a process without an
    endpoint may be on another host, which is asked by its own task.
    """
    clock, fleet = work.clock, work.fleet(wish)
    deployment = work.deployment(fleet)
    begun = clock.now()
    since = begun if wish.since is None else wish.since
    pause = min(max((begun - since) * ROUND_SHARE, SHORTEST_ROUND_S), LONGEST_ROUND_S)
    while True:
        rows = _statuses(deployment, fleet, wish)
        ended = [row.id for row in rows if row.state not in (*RUNNING, UNKNOWN)]
        if ended:
            last = _unit_states(deployment, fleet, wish, log_lines=LOG_LINES)
            words = "; ".join(f"{process}: {why_ended(last[process])}" for process in ended)
            return {"failed": True, "ready": False, "msg": words}
        silent = [row.id for row in rows if not row.ready]
        if not silent:
            return {"ready": True, "silent": []}
        now = clock.now()
        if now - since > wish.ready_s:
            late = f"not ready within {wish.ready_s:g} s: {', '.join(silent)}. `fab logs` says why."
            return {"failed": True, "ready": False, "msg": late}
        if now - begun > pause:
            work.say(f"awaiting {', '.join(silent)}, {now - since:.0f} s of {wish.ready_s:g}")
            return {"ready": False, "silent": silent}
        clock.sleep(POLL_S)


def prove_host(work: HostAtWork, wish: Wish) -> Result:
    """Have every rank of this host generate a token, or a request go through its router or edge: the proof of `fab up`.

    Of ranks that are not proven within a round `ready` is false and `silent` names their processes. A rank is proven
    from its own host, with a rank of another one where a request needs both.
    """
    clock, fleet, secrets = work.clock, work.fleet(wish), work.secrets()
    key = secrets.get("api_key")
    deployment = replace(
        part_of(work.deployment(fleet)),
        headers={"Authorization": f"Bearer {key.reveal()}"} if key else {},
        client=client_of(revealed(secrets)),
        nonce=os.urandom(8).hex(),
    )
    if wish.kind != "engine":
        endpoints = deployment.endpoints
        front = endpoints.router if wish.kind == "router" else endpoints.edge
        if front is None or front.host != fleet.name:
            return {"ready": True, "silent": []}
        return {"ready": True, "silent": [], "answer": ask_through(deployment, front)}
    begun = clock.now()
    since = begun if wish.since is None else wish.since
    pause = min(max((begun - since) * ROUND_SHARE, SHORTEST_ROUND_S), LONGEST_ROUND_S)
    readiness = Readiness(deployment, begun=begun, host=fleet.name)
    while not readiness.look(reads_logs=False):
        now, silent = clock.now(), list(readiness.awaited())
        if now - since > wish.ready_s:
            late = (
                f"no token within {wish.ready_s:g} s from {', '.join(silent)}. `fab logs` says why."
            )
            return {"failed": True, "ready": False, "msg": late}
        if now - begun > pause:
            work.say(
                f"no token yet from {', '.join(silent)}, {now - since:.0f} s of {wish.ready_s:g}"
            )
            return {"ready": False, "silent": silent}
        clock.sleep(POLL_S)
    return {"ready": True, "silent": [], "proven": len(readiness.proven)}


def hand_host_over(work: HostAtWork, wish: Wish) -> Result:
    """Have the host's watcher keep its groups alive from now on."""
    if not wish.checks:
        hand_over(part_of(work.deployment(work.fleet(wish))), work.watch_key())
    return {}


def give_lease_back(work: HostAtWork, wish: Wish) -> Result:
    """Let others change the deployment again."""
    if wish.lease is not None and not wish.checks:
        lease = {**work.lease(wish.lease, run_of_this_task()), "release": True}
        limit = work.deployment(work.fleet(wish)).limits.ask_s
        work.ask({"operation": "lease", "lease": lease}, timeout_s=limit)
    return {}


def _statuses(deployment: Deployment, fleet: OneHost, wish: Wish) -> list[ProcessStatus]:
    """The host's processes of a kind; one without an endpoint is ready when it runs."""
    plan, limit = deployment.plan, deployment.limits.ask_s
    speaks = {process.id for process in plan.on_host(fleet.name) if process.endpoint is not None}
    rows = observe(fleet, [fleet.name], plan.stack, timeout_s=limit)
    return [
        row if row.id in speaks or row.state != "active" else replace(row, ready=True)
        for row in rows
        if row.kind == wish.kind or row.state == UNKNOWN
    ]


def _unit_states(
    deployment: Deployment, fleet: OneHost, wish: Wish, *, log_lines: int
) -> dict[str, UnitState]:
    """The host's units of a kind by process id."""
    units = deployment.units(wish.kind).get(fleet.name, {})
    request = units_request("status", list(units), log_lines=log_lines)
    reports = ask_all(fleet, {fleet.name: request}, timeout_s=deployment.limits.ask_s)
    return read_units(fleet.name, reports[fleet.name], units)


OPERATIONS: Mapping[str, Callable[[HostAtWork, Wish], Result]] = {
    "tune": tune_host,
    "look": look_at_host,
    "hold": hold_host,
    "take-back": take_host_back,
    "install": install_on_host,
    "start": start_units,
    "ready": await_units,
    "prove": prove_host,
    "watch": hand_host_over,
    "release": give_lease_back,
}
