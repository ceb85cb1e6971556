"""Proves a running deployment: hosts as declared, and every capability through every rank and the router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.load import Catalog, UnknownIdError
from infra.catalog.schema import Checkpoint
from infra.launch.answering import away_of, refuse_silence
from infra.launch.deployment import Deployment
from infra.launch.handover import Look, look_at
from infra.launch.proof.host_drift import DRIFT_GROUPS, Check, drift
from infra.launch.proof.live import check_processes, frozen_processes, read_live
from infra.launch.proof.questions import forms_of
from infra.launch.proof.rdma_counters import check_counters, moved_between, read_counters
from infra.launch.proof.serving import Serving, not_known
from infra.launch.proof.watchers import check_watchers
from infra.launch.secret import Secret
from infra.plan.endpoints import Endpoints, RankEndpoint
from infra.plan.process import Plan


def verify(
    deployment: Deployment, secrets: Mapping[str, Secret], timeout_s: float, catalog: Catalog
) -> list[Check]:
    """Every check, hosts first; one that fails stops none of the others.

    Args:
        deployment: what should be there.
        secrets: of the stack; installed copies are compared with them.
        timeout_s: limit of one request to an engine.
        catalog: what is true of the world.

    With a fleet that leaves out who does not answer (`AnsweringFleet`), what such a host holds is not known.

    Raises:
        HostsFailed: a host cannot be asked, or (of such a fleet) none can.
    """
    checks = drift(deployment, secrets)
    refuse_silence(deployment.fleet)
    serving = Serving(deployment, timeout_s, _model_of(deployment.plan, catalog))
    seen = look_at(deployment)
    units = serving.check_units() + check_members(deployment, seen)
    watchers = check_watchers(deployment, seen)
    before = read_counters(deployment, catalog)
    # what is silent shows by the first words, and is not waited for again
    capabilities, everyone = deployment.plan.capabilities, deployment.endpoints.ranks
    ranks: list[Check] = []
    answered: list[Check] = []
    forms = forms_of(capabilities, serving.thinking_off)
    of_servers = dict.fromkeys(forms, _first_ranks(deployment.endpoints))
    for asks in (
        dict.fromkeys(capabilities[:1], everyone),
        {**dict.fromkeys(capabilities[1:], everyone), **of_servers},
    ):
        deployment.say(f"asking ranks and router: {', '.join(asks)}")
        asked = serving.check_ranks(asks)
        # a rank that answers a form wrongly has answered, and had its KV moved
        ranks += [check for check in asked if check.check in capabilities]
        answered += [*asked, *serving.check_router(list(asks))]
    answered += serving.check_pairs()
    answered += serving.check_edge()
    after = read_counters(deployment, catalog)
    # transports are logged by a group's first requests at the latest: those are behind it now
    live = read_live(deployment)
    checks += check_processes(deployment, catalog, live)
    units += frozen_processes(deployment, live)
    moved = {host: moved_between(before.get(host, {}), after[host]) for host in after}
    lines = {name: has.lines for name, has in live.processes.items()}
    proven = _fully_proven(deployment, ranks)
    told = {host: seen if host in proven else None for host, seen in moved.items()}
    checks += check_counters(deployment, catalog, told, lines)
    return checks + unseen_hosts(deployment, checks) + watchers + units + answered


def _fully_proven(deployment: Deployment, checks: Sequence[Check]) -> set[str]:
    """The hosts whose ranks have all answered; nobody's when any rank of the deployment failed to.

    Args:
        deployment: whose.
        checks: of ranks alone: each has its KV handed on, whatever router and edge make of clients.
    """
    if any(check.is_wrong for check in checks):
        return set()
    unknown = {check.process for check in checks if check.ok is None}
    plan = deployment.plan
    open_hosts = {process.host for process in plan.processes if process.id in unknown}
    return {host.name for host in plan.hosts} - open_hosts


def unseen_hosts(deployment: Deployment, checks: Sequence[Check]) -> list[Check]:
    """A check for each group of the state of a host that told nothing of it; what it holds is not known."""
    seen = {check.process for check in checks if check.is_drift}
    return [
        Check(process=host, check=group, ok=None, detail=not_known(host), is_drift=True)
        for host in away_of(deployment.fleet)
        for group in DRIFT_GROUPS
        if host not in seen and deployment.states[host].of_groups(group)
    ]


def check_members(deployment: Deployment, look: Look) -> list[Check]:
    """A failed check for each group that the router was told to leave out, and was not told to take back."""
    router = deployment.endpoints.router
    if router is None:
        return []
    return [
        Check(
            process=router.id,
            check="members",
            ok=False,
            detail=f"it leaves out {group} since a restart that did not end: `fab up` has it taken back",
            is_drift=False,
        )
        for group in look.left_out
    ]


def _model_of(plan: Plan, catalog: Catalog) -> Checkpoint | None:
    """What the catalogue knows of the plan's checkpoint, None of another."""
    try:
        return catalog.checkpoint(plan.checkpoint)
    except UnknownIdError:
        return None


def _first_ranks(endpoints: Endpoints) -> tuple[RankEndpoint, ...]:
    """The first rank of every server that clients get answers of, in plan order."""
    first: dict[str, RankEndpoint] = {}
    for rank in endpoints.ranks:
        if rank.role != "prefill":
            first.setdefault(rank.url, rank)
    return tuple(first.values())
