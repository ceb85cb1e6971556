"""Waits until every rank has generated a token; notices at once what will never be ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.engines.phases import NO_PHASE, Phase, read_phase
from infra.engines.serving import HEALTH
from infra.launch.deployment import Deployment
from infra.launch.failures import (
    failed_processes,
    misplaced_process,
    never_ready,
    not_in_time,
)
from infra.launch.fleet import Request
from infra.launch.port_holders import find_misplaced
from infra.launch.progress import Progress
from infra.launch.proof.probing import (
    HEALTH_S,
    ask_reachable,
    probe_hosts,
    read_engine_ids,
    run_proofs,
)
from infra.launch.proof.rank import Asking, Verdict, build_proof, partners
from infra.launch.unit_states import (
    UnitState,
    own_reason,
    read_units,
    says_serving,
    units_request,
)
from infra.plan.endpoints import RankEndpoint

OK_STATUS = 200
# An engine that answers with an error this often does not only warm up.
DEFINITE_NOES = 3
LOG_LINES = 60
# Units are looked at this often at most: of all properties that systemd computes for it, it costs a host with sixteen
# processes 50 ms of a processor, which engines that start need themselves.
UNITS_S = 1.0
# While some of a deployment answer and some do not, logs are read this often.
SPLIT_LOOK_S = 2.0
# How long an endpoint may be silent after its own log has said that it serves.
CLAIM_S = 3.0
# How long a wrong answer is not believed beside a silent endpoint: two engines of a host share a port without a word,
# and the silent one's log tells which of them is wrong.
DOUBT_S = SPLIT_LOOK_S + CLAIM_S + 1.0
PHASE_LINES = 20
QUEUED = "systemd on {} starts something else first, `systemctl list-jobs` there says what"


@dataclass(slots=True)
class Readiness:
    """One wait for a deployment whose engines have been started.

    Args:
        host: where the ranks are that are to be proven; None for all of them. Endpoints elsewhere are only asked
            whether they answer, as those here are proven with them.
        units: process → its latest state; those that are known already, where somebody has just looked.
        healthy: url → when it first answered.
        refused: url → what it said instead.
        claims: process → when its log was first seen to say that it serves.
        phases: process → how far its log last said that it is.
        proven: rank → what proved it.
        refusals: rank → how many definite ones in a row, and the latest.
        doubted: rank → since when its refusals would be enough, were there no silent endpoint on its host.
        attempts: rounds of proofs so far.
        looked: when logs were last read.
        units_seen: when the units were last looked at.
    """

    deployment: Deployment
    begun: float
    host: str | None = None
    units: dict[str, UnitState] = field(default_factory=dict)
    healthy: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    proven: dict[RankEndpoint, Verdict] = field(default_factory=dict)
    refusals: dict[RankEndpoint, tuple[int, Verdict]] = field(default_factory=dict)
    doubted: dict[RankEndpoint, float] = field(default_factory=dict)
    attempts: int = 0
    looked: float = 0.0
    units_seen: float = field(init=False)

    def __post_init__(self) -> None:
        """Whoever knows the units has just looked at them; of those that do not run more is to be known."""
        is_known = bool(self.units) and not any(unit.has_ended for unit in self.units.values())
        self.units_seen = self.deployment.clock.now() if is_known else -UNITS_S

    def wait(self) -> dict[RankEndpoint, Verdict]:
        """What proved each rank.

        Raises:
            NotReady: a process has ended, answers with errors, or was not ready in time.
            HostsFailed: a host is out of reach and stays so.
        """
        limits, clock = self.deployment.limits, self.deployment.clock
        progress = Progress(self.deployment.say, limits.progress_s, self.begun)
        pause = limits.first_poll_s
        while True:
            looked = clock.now()
            if self.look(reads_logs=self._logs_are_due(progress), until_s=pause):
                return self.proven
            now = clock.now()
            if now - self.begun > limits.ready_s:
                raise not_in_time(self.deployment, self.awaited(), self._reasons(), limits.ready_s)
            if progress.is_due(now):
                progress.show(now, limits.ready_s, self._counts(), self._awaited_phases())
            # hosts have waited for their endpoints meanwhile: only what that left of the pause is slept here
            left_s = pause - (now - looked)
            clock.sleep(max(min(left_s, limits.ready_s - (now - self.begun)), 0.01))
            pause = min(pause * 1.3, limits.longest_poll_s)

    def look(self, *, reads_logs: bool, until_s: float = 0.0) -> bool:
        """Look at everything once, and try what is not proven yet; whether every rank is.

        Args:
            reads_logs: whether the last lines of logs are read, too.
            until_s: how long hosts wait for endpoints that do not answer.

        Raises:
            NotReady: a process has ended or answers with errors.
            HostsFailed: a host is out of reach and stays so.
        """
        if reads_logs or self.deployment.clock.now() - self.units_seen >= UNITS_S:
            self._look_at_units(reads_logs=reads_logs)
        self._look_at_health(until_s)
        self._prove()
        self._refuse_contradictions()
        return not self._missing()

    def awaited(self) -> tuple[str, ...]:
        """Processes that have not proven themselves, in plan order."""
        missing = {rank.process for rank in self._missing()}
        return tuple(process.id for process in self.deployment.engines() if process.id in missing)

    def _missing(self) -> list[RankEndpoint]:
        """The ranks that are still to be proven."""
        return [
            rank
            for rank in self.deployment.endpoints.ranks
            if rank not in self.proven and self.host in (None, rank.host)
        ]

    def _logs_are_due(self, progress: Progress) -> bool:
        """Whether the next look at the units shall bring the last lines of the logs along."""
        now = self.deployment.clock.now()
        is_split = bool(self.healthy) and bool(self.refused)
        return progress.is_due(now) or (is_split and now - self.looked > SPLIT_LOOK_S)

    def _look_at_units(self, *, reads_logs: bool) -> None:
        """The state of every engine's unit; one that has ended ends the wait."""
        log_lines = PHASE_LINES if reads_logs else 0
        self._ask_units(self.deployment.units("engine"), log_lines=log_lines)
        self.units_seen = self.deployment.clock.now()
        if reads_logs:
            self._note_phases()
        if not any(state.has_ended for state in self.units.values()):
            return
        # Others of the group may follow within moments; the first to end is the cause.
        self.deployment.clock.sleep(min(0.5, self.deployment.limits.settle_s))
        self._ask_units(self.deployment.units("engine"), log_lines=0)
        ended = {process for process, state in self.units.items() if state.has_ended}
        self._ask_units(_only(self.deployment.units("engine"), ended), log_lines=LOG_LINES)
        misplaced = find_misplaced(self.deployment, self.units)
        if misplaced is not None:
            raise misplaced_process(self.deployment, misplaced)
        raise failed_processes(self.deployment, [self.units[process] for process in ended])

    def _note_phases(self) -> None:
        """What the last lines of processes that are still awaited tell of them."""
        self.looked = self.deployment.clock.now()
        for process in self.awaited():
            tail = self.units[process].log_tail if process in self.units else ()
            told = read_phase(self.deployment.endpoints.engine, tail)
            if told is not None:
                self.phases[process] = told
            if says_serving(tail):
                self.claims.setdefault(process, self.looked)

    def _ask_units(self, units: Mapping[str, Mapping[str, str]], *, log_lines: int) -> None:
        requests = {
            host: units_request("status", list(names), log_lines=log_lines)
            for host, names in units.items()
        }
        for host, report in self._ask(requests, self.deployment.limits.ask_s).items():
            self.units.update(read_units(host, report, units[host]))

    def _look_at_health(self, until_s: float) -> None:
        """Ask every endpoint that has not answered yet; hosts answer when all of theirs do, or after `until_s`."""
        awaited = {
            rank.url: rank.host
            for rank in self.deployment.endpoints.ranks
            if rank.url not in self.healthy
        }
        requests: dict[str, list[dict[str, object]]] = {}
        for url, host in awaited.items():
            step = {"method": "GET", "url": url + HEALTH, "timeout_s": HEALTH_S}
            requests.setdefault(host, []).append({"id": url, "steps": [step]})
        for url, answers in self._probe(requests, HEALTH_S, until_s).items():
            answer = answers[-1] if answers else {}
            if answer.get("status") == OK_STATUS:
                self.healthy[url] = self.deployment.clock.now()
                self.refused.pop(url, None)
            else:
                self.refused[url] = str(answer.get("error") or f"HTTP {answer.get('status')}")

    def _prove(self) -> None:
        """Try every proof whose endpoints are healthy."""
        endpoints, limits = self.deployment.endpoints, self.deployment.limits
        pairs = partners(endpoints)
        ready = [
            rank
            for rank in self._missing()
            if all(need.url in self.healthy for need in (rank, pairs.get(rank, rank)))
        ]
        if not ready:
            return
        self.attempts += 1
        limit = min(limits.first_proof_s * 2 ** (self.attempts - 1), limits.longest_proof_s)
        asking = Asking(
            nonce=f"{self.deployment.nonce} {self.attempts}",
            timeout_s=limit,
            headers=self.deployment.headers,
            engine_ids=read_engine_ids(
                self.deployment, [*ready, *(pairs[rank] for rank in ready if rank in pairs)]
            ),
        )
        proofs = [build_proof(endpoints, rank, pairs.get(rank), asking) for rank in ready]
        for answered in run_proofs(self.deployment, proofs, limit):
            rank, verdict = answered.proof.rank, answered.verdict
            if verdict.ok:
                self.proven[rank] = verdict
                self.refusals.pop(rank, None)
            else:
                count = self.refusals.get(rank, (0, verdict))[0] if verdict.is_definite else -1
                self.refusals[rank] = (count + 1, verdict)

    def _probe(
        self, probes: Mapping[str, list[dict[str, object]]], limit: float, until_s: float
    ) -> dict[str, list[Mapping[str, object]]]:
        return probe_hosts(self.deployment, probes, limit, until_s=until_s)

    def _ask(
        self, requests: Mapping[str, Request], limit: float
    ) -> dict[str, Mapping[str, object]]:
        return ask_reachable(self.deployment, requests, limit)

    def _refuse_contradictions(self) -> None:
        """What cannot become ready any more although every unit runs.

        Raises:
            NotReady: an endpoint answers with errors, or refuses connections although its group serves.
        """
        # Decode ranks fail with a prefill rank that is wrong: that one is named first.
        for rank, (count, verdict) in sorted(
            self.refusals.items(), key=lambda entry: entry[0].role != "prefill"
        ):
            if count >= DEFINITE_NOES and not self._may_be_anothers(rank):
                reason = verdict.detail + self._said(rank.process)
                raise never_ready(self.deployment, rank, reason)
        now, settle_s = self.deployment.clock.now(), self.deployment.limits.settle_s
        for rank in self.deployment.endpoints.ranks:
            if rank.url in self.healthy or self.host not in (None, rank.host):
                continue
            peers = [
                self.healthy[other.url]
                for other in self.deployment.endpoints.ranks
                if other.group == rank.group and other.url in self.healthy
            ]
            claimed = now - self.claims.get(rank.server, now) > min(settle_s, CLAIM_S)
            if claimed or (peers and now - min(peers) > settle_s):
                whose = (
                    "its own log says that it serves"
                    if claimed
                    else "the others of its group serve"
                )
                reason = (
                    f"{rank.url} does not answer ({self.refused.get(rank.url)}) although {whose}"
                )
                raise never_ready(self.deployment, rank, reason)

    def _may_be_anothers(self, rank: RankEndpoint) -> bool:
        """Whether what a rank answered may have come from another engine of its host, silent where it should answer."""
        silent = [
            other
            for other in self.deployment.endpoints.ranks
            if other.host == rank.host and other.url not in self.healthy
        ]
        now = self.deployment.clock.now()
        return bool(silent) and now - self.doubted.setdefault(rank, now) <= DOUBT_S

    def _said(self, process: str) -> str:
        """What a running process's own log gives as the reason, as a further sentence."""
        units = _only(self.deployment.units("engine"), {process})
        self._ask_units(units, log_lines=LOG_LINES)
        state = self.units.get(process)
        reason = own_reason(state.log_tail) if state is not None else ""
        return f"; its log says: {reason}" if reason else ""

    def _reasons(self) -> dict[str, str]:
        """Why each awaited process is not ready, as far as it is known."""
        reasons = {
            rank.process: self.refused[rank.url]
            for rank in self.deployment.endpoints.ranks
            if rank.url in self.refused
        }
        reasons.update(
            {rank.process: verdict.detail for rank, (_, verdict) in self.refusals.items()}
        )
        reasons.update(
            {name: QUEUED.format(unit.host) for name, unit in self.units.items() if unit.is_waiting}
        )
        return {
            process: f"{reason} ({self.phases[process].words})"
            if process in self.phases
            else reason
            for process, reason in reasons.items()
        }

    def _counts(self) -> dict[str, tuple[int, int]]:
        """Proven and all ranks by role."""
        counts: dict[str, tuple[int, int]] = {}
        for rank in self.deployment.endpoints.ranks:
            done, total = counts.get(rank.role, (0, 0))
            counts[rank.role] = (done + (rank in self.proven), total + 1)
        return counts

    def _awaited_phases(self) -> dict[str, Phase]:
        """How far each awaited process is, in plan order."""
        return {process: self.phases.get(process, NO_PHASE) for process in self.awaited()}


def _only(units: Mapping[str, Mapping[str, str]], processes: set[str]) -> dict[str, dict[str, str]]:
    """The units of some processes, by host."""
    chosen = {
        host: {unit: process for unit, process in names.items() if process in processes}
        for host, names in units.items()
    }
    return {host: names for host, names in chosen.items() if names}
