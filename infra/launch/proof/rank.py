"""Proof that a rank serves: the requests that make it generate a token, built from the plan alone.

A bare request can kill a decode rank of a disaggregated deployment: it is always asked as the router would,
with a prefill rank before or beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from infra.engines.serving import (
    COMPLETIONS,
    KV_PARAMS,
    METRICS,
    advertised_address,
    answer_tokens,
    completion,
    counter_pattern,
    decode_params,
    generated_tokens,
    prefill_part,
    rank_fields,
    rank_headers,
    room_fields,
)
from infra.plan.endpoints import Endpoints, RankEndpoint
from infra.spec.stack import EngineName

PROOF_TOKENS = 4
TIMED_OUT = "timed out"  # as agent/processes/probe.py and Python's sockets say it
FIRST_ERROR_STATUS = 400
METRICS_S = 10.0

Step = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How requests are sent.

    Args:
        nonce: makes request and transfer ids new for every attempt.
        timeout_s: limit of one request.
        headers: for every request, e.g. the API key's.
        engine_ids: by bootstrap address and rank, where a decode rank must be told them.
    """

    nonce: str
    timeout_s: float
    headers: Mapping[str, str]
    engine_ids: Mapping[tuple[str, int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A client's request.

    Args:
        name: what it proves.
        path: of the endpoint.
        body: as the client sends it.
        wanted: what a right answer names, "" where any words will do.
    """

    name: str
    path: str
    body: Mapping[str, object]
    wanted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A prefill and a decode rank that one request goes through, as a router would send it.

    Args:
        endpoints: what the ranks share.
        rank: the one of the two that is proven.
        prefill: who computes the prompt.
        decode: who generates the answer.
        question: the client's request.
        asking: how requests are sent.
    """

    endpoints: Endpoints
    rank: RankEndpoint
    prefill: RankEndpoint
    decode: RankEndpoint
    question: Question
    asking: Asking

    def ask(self, rank: RankEndpoint, body: Mapping[str, object]) -> Step:
        """One request of the two."""
        return _ask(self.endpoints, rank, self.asking, (self.question.path, body))

    def with_counter(self, steps: list[Step]) -> Proof:
        """These steps as one probe that proves the rank, and needs both."""
        return _with_counter(self.endpoints, self.rank, (self.prefill, self.decode), steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The requests that prove one rank.

    Args:
        rank: what is proven.
        needs: urls that must be healthy first.
        probes: steps by probe; probes of one proof run at the same time.
        asked: (probe, step) of the requests whose answers must hold a token; the last one is the client's.
        counted: steps of the first probe that read the counter before and after, None without one.
    """

    rank: RankEndpoint
    needs: tuple[str, ...]
    probes: tuple[tuple[Step, ...], ...]
    asked: tuple[tuple[int, int], ...]
    counted: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt at a proof says.

    Args:
        ok: the rank generated a token.
        is_definite: an answer that says no, rather than none at all.
        detail: the token count, or the engine's words.
    """

    ok: bool
    is_definite: bool
    detail: str

    @property
    def has_timed_out(self) -> bool:
        """Whether the question was taken and nothing came: nobody listens where one is refused or cut off."""
        return not self.is_definite and self.detail == TIMED_OUT


def partners(endpoints: Endpoints) -> dict[RankEndpoint, RankEndpoint]:
    """The rank of the other role that each rank of a disaggregated deployment is proven with.

    Every decode rank gets a prefill rank and, where both are needed at once, every prefill rank a decode rank.
    """
    prefill, decode = endpoints.of_role("prefill"), endpoints.of_role("decode")
    if not prefill or not decode:
        return {}
    pairs = {rank: prefill[i % len(prefill)] for i, rank in enumerate(decode)}
    pairs.update({rank: decode[i % len(decode)] for i, rank in enumerate(prefill)})
    return pairs


def token_question(model: str) -> Question:
    """The cheapest request that makes a rank generate."""
    return Question(name="token", path=COMPLETIONS, body=completion(model, max_tokens=PROOF_TOKENS))


def build_proof(
    endpoints: Endpoints, rank: RankEndpoint, partner: RankEndpoint | None, asking: Asking
) -> Proof:
    """The requests that make a rank generate a token.

    A prefill rank that needs no partner to do so is asked alone.
    """
    question = token_question(rank.model)
    if endpoints.handover == "answer" and rank.role == "prefill":
        step = _ask(endpoints, rank, asking, (question.path, prefill_part(question.body, None)))
        return _with_counter(endpoints, rank, (rank,), [step])
    return build_question(endpoints, rank, partner, question, asking)


def build_question(
    endpoints: Endpoints,
    rank: RankEndpoint,
    partner: RankEndpoint | None,
    question: Question,
    asking: Asking,
) -> Proof:
    """A client's request through one rank, as the router would send it.

    One prefill rank helps to prove many decode ranks: each of those requests has an id of its own. Each has a salt of
    its own, too (vllm 0.22.1 and sglang 0.5.9: `cache_salt`): a decode rank that has seen the prompt fetches nothing.
    """
    asking = replace(asking, nonce=f"{asking.nonce} for {rank.group} {rank.rank}")
    if endpoints.handover == "none" or partner is None:
        step = _ask(endpoints, rank, asking, (question.path, question.body))
        return _with_counter(endpoints, rank, (rank,), [step])
    prefill, decode = (rank, partner) if rank.role == "prefill" else (partner, rank)
    salt = {"cache_salt": f"moe-infra-{_number(asking.nonce, rank):x}"}
    question = replace(question, body={**question.body, **salt})
    pair = _Pair(
        endpoints=endpoints,
        rank=rank,
        prefill=prefill,
        decode=decode,
        question=question,
        asking=asking,
    )
    return _one_after_the_other(pair) if endpoints.handover == "answer" else _both_at_once(pair)


def judge_proof(
    engine: EngineName, proof: Proof, answers: Sequence[Sequence[Mapping[str, object]]]
) -> Verdict:
    """What the answers say.

    Args:
        engine: whose counter is read.
        proof: what was asked.
        answers: by probe, the answers of its steps, as far as they went.
    """
    problem = Verdict(ok=False, is_definite=False, detail="no answer")
    tokens: list[int] = []
    for probe, step in proof.asked:
        given = answers[probe]
        if len(given) <= step or not is_good(given[step]):
            return _no(given[min(step, len(given) - 1)]) if given else problem
        if stray := _stray_address(proof.rank, given[step].get("body")):
            return _definite_no(stray)
        tokens.append(answer_tokens(given[step].get("body")))
    if 0 in tokens:
        return _definite_no("It answered without a single token.")
    if lacking := _missing_count(engine, proof, answers[0]):
        return _definite_no(f"It answered, but its counter of generated tokens {lacking}.")
    return Verdict(ok=True, is_definite=True, detail=f"{tokens[-1]} tokens")


def _missing_count(
    engine: EngineName, proof: Proof, answers: Sequence[Mapping[str, object]]
) -> str | None:
    """What is wrong with the rank's counter, None when it rose or is not asked for."""
    if proof.counted is None:
        return None
    before, after = (_counter(engine, proof, answers, step) for step in proof.counted)
    if after is None:
        return "is not there"
    # A counter that was not there before has counted nothing yet.
    return f"stayed at {after:g}" if after <= (before or 0.0) else None


def _stray_address(rank: RankEndpoint, body: object) -> str | None:
    """Why nobody can fetch a prefill rank's KV cache from where it says, None when it says right."""
    own, told = urlsplit(rank.url).hostname, advertised_address(body)
    if rank.role != "prefill" or told is None or told == own:
        return None
    return (
        f"it tells decode ranks to fetch its KV cache from {told}, not from its own address {own}"
    )


def _one_after_the_other(pair: _Pair) -> Proof:
    """The prefill rank first; what it answers about its KV cache goes to the decode rank."""
    first = pair.ask(pair.prefill, prefill_part(pair.question.body, None))
    second = pair.ask(pair.decode, pair.question.body)
    second["merge"] = {"from_step": 1 if pair.rank.counts_tokens else 0, "key": KV_PARAMS}
    return pair.with_counter([first, second])


def _both_at_once(pair: _Pair) -> Proof:
    """Both sides get the request at the same time and find each other by a bootstrap server."""
    body, bootstrap = pair.question.body, pair.prefill.bootstrap or ""
    number = _number(pair.asking.nonce, pair.rank)
    if pair.endpoints.handover == "bootstrap-room":
        place = urlsplit(bootstrap)
        room = room_fields(place.hostname or "", place.port or 0, number)
        bodies = {pair.prefill: {**body, **room}, pair.decode: {**body, **room}}
    else:
        transfer = f"moe-infra-{number:x}"
        identity = pair.asking.engine_ids.get((bootstrap, pair.prefill.rank), "")
        params = decode_params(bootstrap, identity, transfer)
        bodies = {
            pair.prefill: prefill_part(body, transfer),
            pair.decode: {**body, KV_PARAMS: params},
        }
    is_prefill = pair.rank == pair.prefill
    own, other = (pair.rank, pair.decode if is_prefill else pair.prefill)
    steps = [pair.ask(each, bodies[each]) for each in (own, other)]
    proof = pair.with_counter(steps[:1])
    # what the client gets is the decode rank's answer
    asked = (*proof.asked, (1, 0)) if is_prefill else ((1, 0), *proof.asked)
    return replace(proof, probes=(*proof.probes, (steps[1],)), asked=asked)


def _with_counter(
    endpoints: Endpoints, rank: RankEndpoint, needs: Sequence[RankEndpoint], steps: list[Step]
) -> Proof:
    """The steps as one probe, between two readings of the rank's counter."""
    asked = len(steps) - 1
    counted = None
    if rank.counts_tokens:
        reading: Step = {
            "method": "GET",
            "url": rank.url + METRICS,
            "timeout_s": METRICS_S,
            "keep": counter_pattern(endpoints.engine),
        }
        steps = [reading, *steps, dict(reading)]
        asked += 1
        counted = (0, len(steps) - 1)
    return Proof(
        rank=rank,
        needs=tuple(dict.fromkeys(need.url for need in needs)),
        probes=(tuple(steps),),
        asked=((0, asked),),
        counted=counted,
    )


def _ask(
    endpoints: Endpoints,
    rank: RankEndpoint,
    asking: Asking,
    question: tuple[str, Mapping[str, object]],
) -> Step:
    """One request to one rank; `question` is path and body."""
    path, body = question
    identity = f"moe-infra-{_number(asking.nonce, rank):x}"
    return {
        "method": "POST",
        "url": rank.url + path,
        "headers": {**asking.headers, "X-Request-Id": identity, **rank_headers(rank.index)},
        "body": {**body, **rank_fields(endpoints.engine, rank.index)},
        "timeout_s": asking.timeout_s,
    }


def _number(nonce: str, rank: RankEndpoint) -> int:
    """63 bits that differ for every attempt and rank."""
    digest = hashlib.sha256(f"{nonce} {rank.group} {rank.rank}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def is_good(answer: Mapping[str, object]) -> bool:
    """Whether a request was answered, wholly and without an error."""
    status = answer.get("status")
    return isinstance(status, int) and status < FIRST_ERROR_STATUS and not answer.get("error")


def _definite_no(detail: str) -> Verdict:
    return Verdict(ok=False, is_definite=True, detail=detail)


def _no(answer: Mapping[str, object]) -> Verdict:
    """An answer that is an error, or none."""
    status = answer.get("status")
    if not isinstance(status, int):
        return Verdict(ok=False, is_definite=False, detail=str(answer.get("error") or "no answer"))
    return Verdict(ok=False, is_definite=True, detail=f"HTTP {status}: {error_text(answer)}")


def error_text(answer: Mapping[str, object]) -> str:
    """The engine's own words in an error answer, on one line."""
    body = answer.get("body")
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        body = inner.get("message", inner) if isinstance(inner, Mapping) else inner
    words = " ".join(str(answer.get("error") or body or "").split())
    return words[:300] or "no words"


def _counter(
    engine: EngineName, proof: Proof, answers: Sequence[Mapping[str, object]], step: int
) -> float | None:
    if len(answers) <= step or not is_good(answers[step]):
        return None
    return generated_tokens(engine, str(answers[step].get("body") or ""), proof.rank.rank)
