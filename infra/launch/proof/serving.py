"""Asks every rank, every pair of ranks and the router what they can do, and judges what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.catalog.schema import Checkpoint
from infra.launch.answering import away_of
from infra.launch.deployment import Deployment, without_hosts
from infra.launch.fleet import ask_all
from infra.launch.proof.edge import check_edge
from infra.launch.proof.host_drift import Check
from infra.launch.proof.known_answer import KNOWN_ANSWER, Pair, cover, told_by, wrong_pairs
from infra.launch.proof.known_answer import question as known_question
from infra.launch.proof.probing import Answered, probe_hosts, read_engine_ids, run_proofs
from infra.launch.proof.questions import missing_from, question_for
from infra.launch.proof.rank import Asking, Question, build_question, error_text, is_good, partners
from infra.launch.unit_states import UnitState, read_units, units_request, why_ended
from infra.plan.endpoints import RankEndpoint
from infra.plan.process import Process

LOG_LINES = 60
# How long a router may say after a restart that it has no endpoint: it looks once a second, and its breaker stays open
# for five (engines/routers.py).
SEES_AGAIN_S, LOOKS_S = 7.0, 1.0
FIRST_SERVER_ERROR = 500


@dataclass(slots=True)
class Serving:
    """Asks ranks and router for one capability after the other.

    Args:
        model: what is known of the checkpoint.
        silent: what gave no answer, or cannot: it is not waited for again.
        router_looks_until: when the router has had the time to see endpoints that came back, from its first answer on.
        hung: processes with a rank that took a question and gave no answer.
        hosts: the host of each process.
    """

    deployment: Deployment
    timeout_s: float
    model: Checkpoint | None
    silent: dict[str, str] = field(default_factory=dict)
    router_looks_until: float | None = None
    hung: set[str] = field(default_factory=set)
    hosts: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Note once where everybody is."""
        self.hosts = {each.id: each.host for each in self.deployment.plan.processes}

    @property
    def thinking_off(self) -> Mapping[str, bool]:
        """What the chat template takes to think no more, {} where that is not known."""
        return self.model.thinking_off if self.model is not None else {}

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

    def check_ranks(self, asks: Mapping[str, Sequence[RankEndpoint]]) -> list[Check]:
        """Capabilities or forms, each through its ranks, all at the same time."""
        pairs = self._pairs()
        ranks = dict.fromkeys(rank for each in asks.values() for rank in each)
        unknown = {rank: self._why_unknown_rank(rank, pairs) for rank in ranks}
        reasons = {
            rank: unknown[rank] or self._reason_not_to_ask(rank, pairs.get(rank)) for rank in ranks
        }
        questions = {name: self._question(name) for name in asks}
        turns = [
            (questions[name], rank, pairs.get(rank))
            for name, each in asks.items()
            for rank in each
            if reasons[rank] is None
        ]
        answers = {
            (question.name, rank): answered
            for (question, rank, _), answered in zip(turns, self._ask_ranks(turns), strict=True)
        }
        checks: list[Check] = []
        for name, rank in ((name, rank) for name, each in asks.items() for rank in each):
            ok: bool | None
            answered, reason = answers.get((name, rank)), reasons[rank] or ""
            ok, detail = _judge(questions[name], answered) if answered else (False, reason)
            why = unknown[rank] or self._why_unknown_rank(rank, pairs)  # it may have gone meanwhile
            if why is not None and not ok:
                ok, detail = None, why
            elif answered is not None and not answered.verdict.is_definite:
                self.silent[rank.process] = f"not asked again: {detail}"
                if answered.verdict.has_timed_out:
                    self.hung.add(rank.process)
            checks.append(
                Check(
                    process=rank.process,
                    check=name,
                    ok=ok,
                    detail=f"rank {rank.rank} of {rank.group}: {detail}",
                    is_drift=False,
                    mend="restart" if rank.process in self.hung else "start",
                )
            )
        return checks

    def check_pairs(self) -> list[Check]:
        """The known answer through pairs of prefill and decode ranks, twice; nothing where none hands its cache over.

        A pair of which a rank is silent is not asked, as the rank has failed already.
        """
        covering = cover(self.deployment.endpoints)
        if not covering.pairs or (self.model is not None and self.model.has_random_weights):
            return []
        self.deployment.say(f"asking for a known answer: {covering.words}")
        asked = [
            (prefill, decode)
            for prefill, decode in covering.pairs
            if not self._why_unknown_rank(decode, {decode: prefill})
            and not self._reason_not_to_ask(decode, prefill)
        ]
        question = known_question(self.deployment.endpoints.model)
        both: list[list[Answered]] = []
        for time in ("first", "again"):
            # ranks have shown their counters, which other pairs move meanwhile
            turns = [
                (
                    replace(question, name=f"{question.name} {time}"),
                    replace(decode, counts_tokens=False),
                    prefill,
                )
                for prefill, decode in asked
            ]
            both.append(self._ask_ranks(turns))
        said: dict[Pair, tuple[str, str]] = {}
        wrong: dict[Pair, str] = {}
        for pair, first, second in zip(asked, *both, strict=True):
            told = told_by(first), told_by(second)
            if told[0] is None or told[1] is None:
                wrong[pair] = next(a.verdict.detail for a in (first, second) if not a.verdict.ok)
            else:
                said[pair] = told[0], told[1]
        return self._pair_checks(covering.pairs, said, {**wrong, **wrong_pairs(said)})

    def check_router(self, names: Sequence[str]) -> list[Check]:
        """Capabilities or forms through the router, as a client asks; nothing without one."""
        router = self.deployment.endpoints.router
        if router is None:
            return []
        unknown = self._why_unknown(router.id)
        reason = unknown or self.silent.get(router.id)
        problems = dict.fromkeys(names, reason) if reason else self._ask_router(router, names)
        unknown = self._why_unknown(router.id)
        return [
            Check(
                process=router.id,
                check=name,
                ok=None if unknown else problem is None,
                detail=unknown or problem or "answered",
                is_drift=False,
            )
            for name, problem in problems.items()
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
        return not_known(host) if host in away_of(self.deployment.fleet) else None

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

    def _question(self, name: str) -> Question:
        deployment = self.deployment
        model = deployment.endpoints.model
        return question_for(name, model, deployment.nonce, self.thinking_off)

    def _ask_ranks(
        self, turns: Sequence[tuple[Question, RankEndpoint, RankEndpoint | None]]
    ) -> list[Answered]:
        """The answers to questions through ranks with their partners, in the order of the turns."""
        deployment = self.deployment
        met = dict.fromkeys(each for turn in turns for each in turn[1:] if each is not None)
        asking = Asking(
            nonce=deployment.nonce,
            timeout_s=self.timeout_s,
            headers=deployment.headers,
            engine_ids=read_engine_ids(deployment, list(met)),
        )
        proofs = [
            build_question(
                deployment.endpoints,
                rank,
                partner,
                question,
                replace(asking, nonce=f"{asking.nonce} {question.name} {_named(partner)}"),
            )
            for question, rank, partner in turns
        ]
        return run_proofs(deployment, proofs, self.timeout_s)

    def _pair_checks(
        self, pairs: Sequence[Pair], said: Mapping[Pair, tuple[str, str]], wrong: Mapping[Pair, str]
    ) -> list[Check]:
        """A check for each wrong pair, and one for each decode process of which pairs are right, or none was asked."""
        checks = []
        for (prefill, decode), why in wrong.items():
            which = f"{_named(decode)} behind {_named(prefill)} ({prefill.process})"
            checks.append(_pair_check(decode.process, f"{which}: {why}", ok=False))
        for process in dict.fromkeys(decode.process for _, decode in pairs):
            own = [pair for pair in pairs if pair[1].process == process]
            right = sum(pair in said and pair not in wrong for pair in own)
            left = sum(pair not in said and pair not in wrong for pair in own)
            if right:
                told = f"the known answer, twice through {right} of {len(own)} pairs"
                rest = (
                    f"; {left} not asked, as a rank of each is silent or not known" if left else ""
                )
                checks.append(_pair_check(process, told + rest, ok=True))
            elif left == len(own):
                prefill, decode = own[0]
                unknown = self._why_unknown_rank(decode, {decode: prefill})
                why = unknown or self._reason_not_to_ask(decode, prefill) or ""
                checks.append(_pair_check(process, why, ok=None if unknown else False))
        return checks

    def _ask_router(self, router: Process, names: Sequence[str]) -> dict[str, str | None]:
        """By name what is wrong with the router's answer, None when it shows what it was asked for."""
        questions = {name: self._question(name) for name in names}
        probes: list[dict[str, object]] = [
            {"id": f"{router.id} {name}", "steps": [self._router_step(router, question)]}
            for name, question in questions.items()
        ]
        told = self._router_told(router, probes)
        found: dict[str, str | None] = {}
        for name, question in questions.items():
            steps = told.get(f"{router.id} {name}", [])
            answer: Mapping[str, object] = steps[-1] if steps else {}
            status = answer.get("status")
            if not isinstance(status, int):
                self.silent[router.id] = f"not asked again: {error_text(answer)}"
                found[name] = error_text(answer)
            elif not is_good(answer):
                found[name] = f"HTTP {status}: {error_text(answer)}"
            else:
                found[name] = missing_from(question, answer.get("body"))
        return found

    def _router_told(
        self, router: Process, probes: list[dict[str, object]]
    ) -> dict[str, list[Mapping[str, object]]]:
        """The router's answers by probe.

        Ranks that have just come up again answer before the router has looked: it gets the time for that, once.
        """
        clock = self.deployment.clock
        while True:
            told = probe_hosts(self.deployment, {router.host: probes}, self.timeout_s)
            if self.router_looks_until is None:
                self.router_looks_until = clock.now() + SEES_AGAIN_S
            statuses = [steps[-1].get("status") for steps in told.values() if steps]
            is_late = any(isinstance(s, int) and s >= FIRST_SERVER_ERROR for s in statuses)
            if not is_late or clock.now() >= self.router_looks_until:
                return told
            clock.sleep(LOOKS_S)

    def _router_step(self, router: Process, question: Question) -> dict[str, object]:
        return {
            "method": "POST",
            "url": f"{router.endpoint}{question.path}",
            "headers": dict(self.deployment.headers),
            "body": dict(question.body),
            "timeout_s": self.timeout_s,
        }


def not_known(host: str) -> str:
    """Why nothing is known of what a host holds."""
    return f"not known: {host} cannot be asked"


def _named(rank: RankEndpoint | None) -> str:
    return "" if rank is None else f"rank {rank.rank} of {rank.group}"


def _pair_check(process: str, detail: str, *, ok: bool | None) -> Check:
    return Check(process=process, check=KNOWN_ANSWER, ok=ok, detail=detail, is_drift=False)


def _judge(question: Question, answered: Answered) -> tuple[bool, str]:
    """Whether an answer shows what was asked for, and what it says."""
    if not answered.verdict.ok:
        return False, answered.verdict.detail
    lacking = missing_from(question, _client_answer(answered))
    return (True, answered.verdict.detail) if lacking is None else (False, lacking)


def _client_answer(answered: Answered) -> object:
    """The body that a client would have got."""
    probe, step = answered.proof.asked[-1]
    steps: Sequence[Mapping[str, object]] = answered.answers[probe]
    return steps[step].get("body")
