"""Rules about captured graphs and draft tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

_WITHOUT_DRAFT = frozenset(
    {"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "mtp", "dspark"}
)
_CLASS_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def capture_sizes_cover(view: PlanView) -> Iterator[Finding]:
    """Captured graphs are multiples of the tokens per step and reach the largest decode batch."""
    for process in view.variants:
        sizes, tokens = captured_sizes(view, process), step_tokens(view, process)
        sequences = as_int(view.flags(process).get("max-num-seqs"), 0)
        if not sizes or process.role == "prefill":
            continue
        field = f"roles.{process.role}.flags.compilation-config"
        odd = [size for size in sizes if size % tokens]
        if tokens > 1 and odd:
            what = f"Captured sizes {_listed(odd)} are no multiples of {tokens} (draft tokens + 1) and are rounded."
            fix = f"Use multiples of {tokens}."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        batch = as_int(view.flags(process).get("max-num-batched-tokens"), max(sizes))
        if max(sizes) > batch:
            beyond = [size for size in sizes if size > batch]
            what = f"Captured sizes {_listed(beyond)} are larger than max_num_batched_tokens {batch} and are dropped."
            yield Finding(field=field, what=what, fix="Remove them.", process=process.id)
        largest = sequences * tokens
        if sequences and max(sizes) < largest:
            what = (
                f"The largest captured size is {max(sizes)}; batches above {max(sizes) // tokens} of "
                f"{sequences} requests run without a graph."
            )
            fix = f"End the list with {largest} (max_num_seqs x (draft tokens + 1))."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def draft_complete(view: PlanView) -> Iterator[Finding]:
    """A draft has a model, and says how many tokens it guesses."""
    for process in view.variants:
        given = view.flags(process).get("speculative-config")
        config = as_map(given)
        if given is None:
            continue
        tokens = config.get("num_speculative_tokens")
        model = config.get("model")
        needs_model = not _drafts_by_itself(str(config.get("method") or ""), str(model or ""))
        if needs_model and (model is None or "/" not in str(model)):
            what = f"The draft model is {model}: neither a path nor a repository."
        elif needs_model and as_int(tokens, 0) < 1:
            what = "The speculative configuration names a draft and not how many tokens it guesses."
        else:
            continue
        fix = "Write draft: {checkpoint, num_speculative_tokens}."
        yield Finding(field="draft", what=what, fix=fix, process=process.id)


def _drafts_by_itself(method: str, model: str) -> bool:
    """Whether no draft model is loaded, or the target's own checkpoint has the draft.

    `mtp` and its names for single models, DSpark, what reads the prompt or the states, and a proposer that is a class
    (vllm config/speculative.py __post_init__@0.17.0 to 0.33.0; `dspark` since 0.25.1, `custom_class` since 0.22.1).
    """
    if method in _WITHOUT_DRAFT or method.endswith("_mtp"):
        return True
    if method == "custom_class" or not method:  # inferred from the model's name
        return model in ("ngram", "[ngram]") or _CLASS_PATH.fullmatch(model) is not None
    return False


def draft_slots(view: PlanView, process: Process) -> int:
    """Places per request that drafting takes in a batch: masked tokens, and one for a whole model as the draft."""
    config = as_map(view.flags(process).get("speculative-config"))
    tokens = as_int(config.get("num_speculative_tokens"), 0)
    method = config.get("method")
    is_parallel = bool(config.get("parallel_drafting")) or method == "dflash"
    return (tokens - 1 if is_parallel else 0) + int(method == "draft_model")


def step_tokens(view: PlanView, process: Process) -> int:
    """Tokens that one decode step takes per request: the draft's and the one that is verified."""
    config = as_map(view.flags(process).get("speculative-config"))
    return as_int(config.get("num_speculative_tokens"), 0) + 1


def captured_sizes(view: PlanView, process: Process) -> list[int]:
    """The graph sizes that a command line names; [] when it leaves them to the engine."""
    flags = view.flags(process)
    named = as_map(flags.get("compilation-config")).get("cudagraph_capture_sizes")
    given = named or flags.get("cudagraph-capture-sizes")
    if not isinstance(given, list | tuple):
        return []
    return [as_int(size, 0) for size in given if as_int(size, 0) > 0]


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:4])) + (" …" if len(sizes) > 4 else "")  # noqa: PLR2004 - as many as are shown
