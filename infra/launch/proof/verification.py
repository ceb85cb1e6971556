"""Proves a running deployment: hosts as declared, and every capability through every rank and the router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.catalog.load import Catalog
from infra.launch.answering import away_of, refuse_silence
from infra.launch.deployment import Deployment, without_hosts
from infra.launch.fleet import ask_all
from infra.launch.handover import Look, look_at
from infra.launch.proof.edge import check_edge
from infra.launch.proof.host_drift import DRIFT_GROUPS, Check, drift
from infra.launch.proof.live import check_processes, frozen_processes, read_live
from infra.launch.proof.probing import Answered, probe_hosts, read_engine_ids, run_proofs
from infra.launch.proof.questions import missing_from, question_for
from infra.launch.proof.rank import Asking, build_question, error_text, is_good, partners
from infra.launch.proof.rdma_counters import check_counters, moved_between, read_counters
from infra.launch.proof.watchers import check_watchers
from infra.launch.secret import Secret
from infra.launch.unit_states import UnitState, read_units, units_request, why_ended
from infra.plan.endpoints import RankEndpoint
from infra.plan.process import Process

LOG_LINES = 60


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
    serving = _Serving(deployment, timeout_s)
    seen = look_at(deployment)
    units = serving.check_units() + check_members(deployment, seen)
    watchers = check_watchers(deployment, seen)
    before = read_counters(deployment, catalog)
    answered: list[Check] = []
    for capability in deployment.plan.capabilities:
        deployment.say(f"asking every rank: {capability}")
        answered += serving.check_ranks(capability)
        answered += serving.check_router(capability)
    answered += serving.check_edge()
    after = read_counters(deployment, catalog)
    # transports are logged by a group's first requests at the latest: those are behind it now
    live = read_live(deployment)
    checks += check_processes(deployment, catalog, live)
    units += frozen_processes(deployment, live)
    moved = {host: moved_between(before.get(host, {}), after[host]) for host in after}
    lines = {name: has.lines for name, has in live.processes.items()}
    proven = _fully_proven(deployment, units + answered)
    told = {host: seen if host in proven else None for host, seen in moved.items()}
    checks += check_counters(deployment, catalog, told, lines)
    return checks + unseen_hosts(deployment, checks) + watchers + units + answered


def _fully_proven(deployment: Deployment, checks: Sequence[Check]) -> set[str]:
    """The hosts whose ranks have all answered; nobody's when any rank of the deployment failed to."""
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
        Check(process=host, check=group, ok=None, detail=_not_known(host), is_drift=True)
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


@dataclass(slots=True)
class _Serving:
    """Asks ranks and router for one capability after the other.

    Args:
        silent: what gave no answer, or cannot: it is not waited for again.
        hung: processes with a rank that took a question and gave no answer.
        hosts: the host of each process.
    """

    deployment: Deployment
    timeout_s: float
    silent: dict[str, str] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    hosts: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Note once where everybody is."""
        self.hosts = {each.id: each.host for each in self.deployment.plan.processes}

    def check_units(self) -> list[Check]:
        """A check for each process that has ended, or of which nothing is known.

        The whole group of one that has ended is not asked, for it would hang.
        """
        ended = self._ended()
        groups = {process.id: process.group for process in self.deployment.plan.processes}
        for state in ended:
            own = groups[state.process]
            named = state.process if own == state.process else f"{state.process} of {own}"
            for process, group in groups.items():
                if group == own:
                    self.silent[process] = f"not asked: {named} has ended"
        for role in dict.fromkeys(process.role for process in self.deployment.engines()):
            members = [process.id for process in self.deployment.engines() if process.role == role]
            router = self.deployment.endpoints.router
            if router is not None and all(member in self.silent for member in members):
                self.silent[router.id] = f"not asked: no {role} group is whole"
        unknown = {
            process.id: reason
            for process in self.deployment.plan.processes
            if (reason := self._why_unknown(process.id)) is not None
        }
        return [
            Check(process=process, check="running", ok=None, detail=reason, is_drift=False)
            for process, reason in unknown.items()
        ] + [
            Check(
                process=state.process,
                check="running",
                ok=False,
                detail=why_ended(state),
                is_drift=False,
            )
            for state in ended
        ]

    def check_ranks(self, capability: str) -> list[Check]:
        """A capability through every rank, all at the same time."""
        endpoints = self.deployment.endpoints
        pairs = self._pairs()
        unknown = {rank: self._why_unknown_rank(rank, pairs) for rank in endpoints.ranks}
        reasons = {
            rank: unknown[rank] or self._reason_not_to_ask(rank, pairs.get(rank))
            for rank in endpoints.ranks
        }
        asked = [rank for rank, reason in reasons.items() if reason is None]
        asking = Asking(
            nonce=f"{self.deployment.nonce} {capability}",
            timeout_s=self.timeout_s,
            headers=self.deployment.headers,
            engine_ids=read_engine_ids(self.deployment, asked, pairs),
        )
        proofs = [
            build_question(
                endpoints, rank, pairs.get(rank), question_for(capability, rank.model), asking
            )
            for rank in asked
        ]
        answers = {
            answered.proof.rank: answered
            for answered in run_proofs(self.deployment, proofs, self.timeout_s)
        }
        checks: list[Check] = []
        for rank, reason in reasons.items():
            ok: bool | None
            ok, detail = (False, reason) if reason else _judge(capability, answers[rank])
            why = unknown[rank] or self._why_unknown_rank(rank, pairs)  # it may have gone meanwhile
            if why is not None and not ok:
                ok, detail = None, why
            elif rank in answers and not answers[rank].verdict.is_definite:
                self.silent[rank.process] = f"not asked again: {detail}"
                if answers[rank].verdict.has_timed_out:
                    self.hung.add(rank.process)
            checks.append(
                Check(
                    process=rank.process,
                    check=capability,
                    ok=ok,
                    detail=f"rank {rank.rank} of {rank.group}: {detail}",
                    is_drift=False,
                    mend="restart" if rank.process in self.hung else "start",
                )
            )
        return checks

    def check_router(self, capability: str) -> list[Check]:
        """A capability through the router, as a client asks; nothing without one."""
        router = self.deployment.endpoints.router
        if router is None:
            return []
        unknown = self._why_unknown(router.id)
        problem = unknown or self.silent.get(router.id) or self._ask_router(router, capability)
        unknown = self._why_unknown(router.id)
        return [
            Check(
                process=router.id,
                check=capability,
                ok=None if unknown else problem is None,
                detail=unknown or problem or "answered",
                is_drift=False,
            )
        ]

    def check_edge(self) -> list[Check]:
        """Whom the edge lets in, and what of a stream; nothing without one."""
        edge = self.deployment.endpoints.edge
        if edge is None:
            return []
        unknown = self._why_unknown(edge.id)
        reason = unknown or self.silent.get(edge.id)
        if reason is None:
            self.deployment.say("asking the edge with a key, with another and with none")
            return check_edge(self.deployment, edge, self.timeout_s)
        ok = None if unknown else False
        return [Check(process=edge.id, check="edge", ok=ok, detail=reason, is_drift=False)]

    def _pairs(self) -> dict[RankEndpoint, RankEndpoint]:
        """With whom each rank is asked: of a group all of whose hosts answer, else one whose own host does."""
        endpoints = self.deployment.endpoints
        whole = without_hosts(self.deployment, away_of(self.deployment.fleet)).endpoints
        known = [rank for rank in endpoints.ranks if self._why_unknown_rank(rank, {}) is None]
        answering = replace(endpoints, ranks=tuple(known))
        return {**partners(endpoints), **partners(answering), **partners(whole)}

    def _why_unknown(self, process: str) -> str | None:
        """Why nothing is known of a process, None where its host answers."""
        host = self.hosts[process]
        return _not_known(host) if host in away_of(self.deployment.fleet) else None

    def _why_unknown_rank(
        self, rank: RankEndpoint, pairs: Mapping[RankEndpoint, RankEndpoint]
    ) -> str | None:
        """Why it cannot be known whether a rank answers, None where it can."""
        for each in (rank, pairs.get(rank)):
            for process in (each.process, each.server) if each is not None else ():
                if reason := self._why_unknown(process):
                    return reason
        return None

    def _ended(self) -> list[UnitState]:
        """Processes that do not run, with their logs."""
        units = self.deployment.units()
        limit = self.deployment.limits.ask_s
        looks = {host: units_request("status", list(names)) for host, names in units.items()}
        reports = ask_all(self.deployment.fleet, looks, timeout_s=limit)
        ended = {
            host: [s.unit for s in read_units(host, report, units[host]).values() if s.has_ended]
            for host, report in reports.items()
        }
        reads = {
            host: units_request("status", names, log_lines=LOG_LINES)
            for host, names in ended.items()
            if names
        }
        reports = ask_all(self.deployment.fleet, reads, timeout_s=limit)
        return [
            state
            for host, report in reports.items()
            for state in read_units(host, report, units[host]).values()
        ]

    def _reason_not_to_ask(self, rank: RankEndpoint, partner: RankEndpoint | None) -> str | None:
        """Why asking a rank would only cost time, None when it would not."""
        for each in (rank, partner):
            for process in (each.process, each.server) if each is not None else ():
                if process in self.silent:
                    return self.silent[process]
        return None

    def _ask_router(self, router: Process, capability: str) -> str | None:
        """What is wrong with the router's answer, None when it shows the capability."""
        question = question_for(capability, self.deployment.endpoints.model)
        step = {
            "method": "POST",
            "url": f"{router.endpoint}{question.path}",
            "headers": dict(self.deployment.headers),
            "body": dict(question.body),
            "timeout_s": self.timeout_s,
        }
        probe: dict[str, object] = {"id": router.id, "steps": [step]}
        steps = probe_hosts(self.deployment, {router.host: [probe]}, self.timeout_s).get(
            router.id, []
        )
        answer: Mapping[str, object] = steps[-1] if steps else {}
        status = answer.get("status")
        if not isinstance(status, int):
            self.silent[router.id] = f"not asked again: {error_text(answer)}"
            return error_text(answer)
        if not is_good(answer):
            return f"HTTP {status}: {error_text(answer)}"
        return missing_from(capability, answer.get("body"))


def _not_known(host: str) -> str:
    return f"not known: {host} cannot be asked"


def _judge(capability: str, answered: Answered) -> tuple[bool, str]:
    """Whether an answer shows a capability, and what it says."""
    if not answered.verdict.ok:
        return False, answered.verdict.detail
    lacking = missing_from(capability, _client_answer(answered))
    return (True, answered.verdict.detail) if lacking is None else (False, lacking)


def _client_answer(answered: Answered) -> object:
    """The body that a client would have got."""
    probe, step = answered.proof.asked[-1]
    steps: Sequence[Mapping[str, object]] = answered.answers[probe]
    return steps[step].get("body")
