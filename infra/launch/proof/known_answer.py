"""A known answer through pairs of prefill and decode ranks: wrong KV cache answers 200, and garbage.

The prompt gives a list of words, and the first part of it once more. At temperature 0 any model goes on with the list
(so does one that was never taught to answer), and only where the decode rank reads what the prefill rank wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from infra.engines.serving import COMPLETIONS, answer_text, completion
from infra.launch.proof.probing import Answered
from infra.launch.proof.rank import Question
from infra.plan.endpoints import Endpoints, RankEndpoint

# Requests are twice as many. The pairs of every shipped stack are no more than that.
MAX_PAIRS = 128
MAX_TOKENS = 24
KNOWN_ANSWER = "known-answer"
# Of the answer; more of it would be cut in the middle of a word.
LEAST_WORDS = 6

_KINDS = (
    "amber", "bright", "copper", "dusty", "early", "frozen", "golden", "hollow", "ivory", "jolly", "little", "mossy",
    "narrow",
)  # fmt: skip
_THINGS = (
    "anchor", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island", "ladder", "mirror",
)  # fmt: skip
# Every kind with every thing once, in an order that nothing but the list itself tells: 143 pairs of words.
_LIST = [
    f"{_KINDS[8 * i % len(_KINDS)]} {_THINGS[3 * i % len(_THINGS)]}"
    for i in range(len(_KINDS) * len(_THINGS))
]
_TOLD = 100
PROMPT = f"The list: {', '.join(_LIST)}.\nThe list again: {', '.join(_LIST[:_TOLD])},"
ANSWER = ", ".join(_LIST[_TOLD:])

Pair = tuple[RankEndpoint, RankEndpoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering:
    """Which pairs are asked.

    Args:
        pairs: prefill and decode rank, in the order in which they were chosen.
        num_pairs: how many there are.
    """

    pairs: tuple[Pair, ...]
    num_pairs: int

    @property
    def words(self) -> str:
        """How much of it all is asked."""
        if len(self.pairs) == self.num_pairs:
            return f"every one of {self.num_pairs} pairs"
        return f"{len(self.pairs)} of {self.num_pairs} pairs, every rank and first every two hosts"


def question(model: str) -> Question:
    """The request whose answer is known."""
    body = completion(model, max_tokens=MAX_TOKENS, prompt=PROMPT)
    return Question(name=KNOWN_ANSWER, path=COMPLETIONS, body=body, wanted=ANSWER)


def cover(endpoints: Endpoints, limit: int = MAX_PAIRS) -> Covering:
    """Every pair once; of more than the limit every rank, then as many pairs of hosts and of processes as go in.

    Args:
        endpoints: of the plan; those of no disaggregated one have no pairs.
        limit: the most pairs, but never fewer than it takes to ask every rank.
    """
    prefill, decode = endpoints.of_role("prefill"), endpoints.of_role("decode")
    if endpoints.handover == "none" or not prefill or not decode:
        return Covering(pairs=(), num_pairs=0)
    num_pairs, longer = len(prefill) * len(decode), max(len(prefill), len(decode))
    if num_pairs <= limit:
        return Covering(pairs=tuple(product(prefill, decode)), num_pairs=num_pairs)
    ranks = [(prefill[i % len(prefill)], decode[i % len(decode)]) for i in range(longer)]
    rest = list(product(prefill, decode))
    chosen = dict.fromkeys([*ranks, *_new_ones(ranks, rest), *rest])
    return Covering(pairs=tuple(chosen)[: max(limit, longer)], num_pairs=num_pairs)


def _new_ones(asked: Sequence[Pair], rest: Sequence[Pair]) -> Iterator[Pair]:
    """Pairs of hosts that are not asked yet, then such pairs of processes."""
    for key in ("host", "process"):
        seen = {(getattr(p, key), getattr(d, key)) for p, d in asked}
        for prefill, decode in rest:
            names = (getattr(prefill, key), getattr(decode, key))
            if names not in seen:
                seen.add(names)
                yield prefill, decode


def told_by(answered: Answered) -> str | None:
    """What a pair has said, None where it gave no answer."""
    if not answered.verdict.ok:
        return None
    probe, step = answered.proof.asked[-1]
    return " ".join(answer_text(answered.answers[probe][step].get("body")).split())


def wrong_pairs(said: Mapping[Pair, tuple[str, str]]) -> dict[Pair, str]:
    """What is wrong with the answers of pairs, by pair; {} when all gave the known one.

    Args:
        said: of each pair both answers.
    """
    wrong = {pair: _wrong(*both) for pair, both in said.items() if not all(map(_is_known, both))}
    heard = {answer for both in said.values() for answer in both}
    if len(wrong) == len(said) > 1 and len(heard) == 1:
        why = f"every pair answers {_shown(heard.pop())}, the list goes on {_shown(ANSWER)}"
        return dict.fromkeys(wrong, f"{why}: it is none of a pair's KV cache, look at the weights")
    return wrong


def _wrong(first: str, second: str) -> str:
    if first != second:
        return f"it answers {_shown(first)}, and asked again {_shown(second)}; the KV cache that comes is wrong"
    return f"it answers {_shown(first)}, the list goes on {_shown(ANSWER)}; the KV cache that comes is wrong"


def _is_known(said: str) -> bool:
    return len(said.split()) >= LEAST_WORDS and ANSWER.startswith(said)


def _shown(words: str) -> str:
    return repr(words[:40])
