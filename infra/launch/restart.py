"""Restarts groups of a running deployment by their own watchers, and proves them again.

The wish is left on the host of rank 0, whose watcher ends the epoch and begins the next one as it does after a fault:
when this side goes away in the middle, the hosts finish by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from infra.errors import InfraError, NotReady, PrerequisiteError, StackError
from infra.launch.deployment import Deployment, without_hosts
from infra.launch.draining import draining
from infra.launch.fleet import Request, ask_all
from infra.launch.handover import Look, look_at
from infra.launch.progress import clock_text
from infra.launch.readiness import Readiness
from infra.launch.restart_without_hosts import refuse_away
from infra.launch.supervision import FAILED, RUNS, GroupState, groups_request
from infra.render.supervision import groups_of

# SIGTERM, two seconds, SIGKILL, five seconds for evidence; the rest is for hosts that are busy.
BEGIN_S = 60.0
PAUSE_S = 0.3
NOBODY: Mapping[str, InfraError] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which groups are restarted; all of them where nothing is named.

    Args:
        role: `prefill`, `decode` or `unified`, None for every role.
        replica: its number, None for every replica.
        rolling: one group after another, each proven before the next one ends.
    """

    role: str | None
    replica: int | None
    rolling: bool


def restart(
    deployment: Deployment,
    selection: Selection,
    operator: str,
    gone: Mapping[str, InfraError] = NOBODY,
) -> Look:
    """Restart groups, prove every rank of the deployment again, and say how it is afterwards.

    Groups with a part on a host that is away are left as they are, and so is a router there.

    Args:
        deployment: the release that the hosts hold.
        selection: which groups, and whether one after another.
        operator: who asks for it; it stands in `fab status` as the reason.
        gone: why a host of it cannot be asked, by host.

    Raises:
        StackError: the selection names no group.
        PrerequisiteError: nobody watches the groups; nothing was changed.
        HostsFailed: a host failed, or a group that is named has a part on one that is away; then nothing was stopped.
        NotReady: a group did not begin again, or does not serve.
    """
    chosen = chosen_groups(deployment, selection)
    refuse_away(deployment, chosen, gone)
    deployment = without_hosts(deployment, gone)
    look = look_at(deployment)
    _refuse_unwatched(deployment, look)
    _say_what_is_lost(deployment, chosen, selection)
    deployment.decided()
    router = draining(deployment)
    if router is not None:
        known = groups_of(deployment.plan)
        others = [name for name in look.left_out if name in known and name not in chosen]
        router.join(others, look.left_out)
    batches = [(group,) for group in chosen] if selection.rolling else [chosen]
    for batch in batches:
        away = tuple(name for name in look.left_out if name in chosen)
        if router is not None:
            away += router.leave(batch, away)
        begun = deployment.clock.now()
        _ask(deployment, batch, operator, look)
        _await_epochs(deployment, batch, look, begun)
        deployment.say(f"{', '.join(batch)}: the next epoch has begun")
        Readiness(deployment, begun=begun).wait()
        took = clock_text(deployment.clock.now() - begun)
        deployment.say(f"{', '.join(batch)}: every rank has generated a token, after {took}")
        if router is not None:
            router.join([name for name in away if name in batch], away)
        look = look_at(deployment)
    return look


def chosen_groups(deployment: Deployment, selection: Selection) -> tuple[str, ...]:
    """The groups that a selection names, in plan order.

    Raises:
        StackError: none.
    """
    known = {name: processes[0] for name, processes in groups_of(deployment.plan).items()}
    chosen = tuple(
        name
        for name, leader in known.items()
        if selection.role in (None, leader.role) and selection.replica in (None, leader.replica)
    )
    if not chosen:
        words = " ".join(
            f"--{name} {value}"
            for name, value in (("role", selection.role), ("replica", selection.replica))
            if value is not None
        )
        what = f"The deployment has no group of {words}."
        raise StackError("command line", what, f"It has {', '.join(known)}.")
    return chosen


def _refuse_unwatched(deployment: Deployment, look: Look) -> None:
    """Without watchers nothing would start what is stopped."""
    missing = sorted(look.hosts - look.watched)
    if missing:
        stack = deployment.plan.stack
        raise PrerequisiteError(
            ", ".join(missing),
            "Nobody watches the groups there, so nobody would start them again. Nothing was changed.",
            f"Run `fab up --stack {stack}`: it starts what has ended, and hands over to the watchers.",
        )


def _say_what_is_lost(deployment: Deployment, chosen: Sequence[str], selection: Selection) -> None:
    """Roles of which nobody serves meanwhile."""
    replicas: dict[str, list[str]] = {}
    for name, processes in groups_of(deployment.plan).items():
        replicas.setdefault(processes[0].role, []).append(name)
    for role, names in replicas.items():
        restarted = [name for name in names if name in chosen]
        if restarted and (len(names) == 1 or (restarted == names and not selection.rolling)):
            deployment.say(f"{role}: no other replica serves while {', '.join(names)} restarts")


def _ask(deployment: Deployment, groups: Sequence[str], operator: str, seen: Look) -> None:
    """Leave the wish that the epochs seen shall end on the hosts of rank 0; asked again it does not end the next."""
    plan = deployment.plan
    found = groups_of(plan)
    requests: dict[str, Request] = {}
    for leader in {found[group][0].host for group in groups}:
        led = [group for group in groups if found[group][0].host == leader]
        epochs = {group: seen.groups[group].epoch for group in led if group in seen.groups}
        wish = groups_request("restart", plan.stack, led, operator)
        requests[leader] = {**wish, "epochs": epochs}
    ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)


def _await_epochs(
    deployment: Deployment, groups: Sequence[str], before: Look, begun: float
) -> None:
    """Wait until every group runs in a newer epoch, and all of its units have been started.

    Raises:
        NotReady: in time they do not, or one has been given up.
    """
    while True:
        look = look_at(deployment)
        waiting = [group for group in groups if not _has_begun(deployment, group, before, look)]
        if not waiting:
            return
        state = look.groups.get(waiting[0])
        if state is not None and state.phase == FAILED and _is_newer(state, before):
            raise _not_begun(deployment, waiting[0], state.words)
        if deployment.clock.now() - begun > BEGIN_S:
            words = state.words if state is not None else "its host of rank 0 does not say why"
            raise _not_begun(deployment, waiting[0], words or "its units do not start")
        deployment.clock.sleep(PAUSE_S)


def _has_begun(deployment: Deployment, group: str, before: Look, look: Look) -> bool:
    state = look.groups.get(group)
    if state is None or state.phase != RUNS or not _is_newer(state, before):
        return False
    members = groups_of(deployment.plan)[group]
    return all(p.id in look.units and look.units[p.id].is_running for p in members)


def _is_newer(state: GroupState, before: Look) -> bool:
    old = before.groups.get(state.group)
    return old is None or state.epoch > old.epoch


def _not_begun(deployment: Deployment, group: str, why: str) -> NotReady:
    stack = deployment.plan.stack
    fix = f"`fab status --stack {stack}` shows it; `journalctl -u moe-{stack}-watch` on its hosts says more."
    return NotReady(group, f"It has not begun again: {why}.", fix)
