"""How far an engine is on its way to serving, read from the lines that it logs while it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.spec.stack import EngineName


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSign:
    """A log line that tells a phase.

    Args:
        step: place in the order of a start, from 0; lines of several workers come mixed.
        pattern: searched for in a line; groups `done` and `all` count the parts of the phase.
        words: what the operator reads; `{done}` and `{all}` stand for the counts.
        source: file of the release that logs it.
        checked: when that was looked up.
    """

    step: int
    pattern: re.Pattern[str]
    words: str
    source: str
    checked: str


@dataclass(frozen=True, slots=True, order=True)
class Phase:
    """How far a start is; greater is further.

    Args:
        step: see `PhaseSign`.
        share: part of the phase that is done, 0 to 1; 0 where it is not counted.
        words: for people.
    """

    step: int
    share: float
    words: str


# The steps that are counted in parts.
WEIGHTS_STEP, GRAPHS_STEP = 2, 7
NO_PHASE = Phase(0, 0.0, "starting")


def read_phase(engine: EngineName, lines: Sequence[str]) -> Phase | None:
    """The phase that the latest telling line tells; None when none does.

    Args:
        engine: whose lines these are.
        lines: of one process, oldest first.
    """
    for line in reversed(lines):
        phase = _told_by(engine, line)
        if phase is not None:
            return phase
    return None


def _told_by(engine: EngineName, line: str) -> Phase | None:
    """The phase that a line tells; a progress bar that draws over itself tells its last state."""
    for sign in SIGNS[engine]:
        counts: Mapping[str, str] | None = None
        for match in sign.pattern.finditer(line):
            counts = match.groupdict()
        if counts is not None:
            share = int(counts["done"]) / max(int(counts["all"]), 1) if "done" in counts else 0.0
            return Phase(sign.step, share, sign.words.format(**counts))
    return None


def _signs(source: str, checked: str, rows: Sequence[tuple[int, str, str]]) -> list[PhaseSign]:
    return [
        PhaseSign(
            step=step, pattern=re.compile(pattern), words=words, source=source, checked=checked
        )
        for step, pattern, words in rows
    ]


_COUNT = r"(?P<done>\d+)/(?P<all>\d+)"
_SHARDS = rf"[Ss]hards:?\s+\d+%(?: Completed)?\s*\|\D*{_COUNT}"
_BAR = rf"\d+%\|[^|]*\|\s*{_COUNT}"

_VLLM: tuple[PhaseSign, ...] = (
    *_signs(
        # The wait for remote ranks is logged at DEBUG only: with it off, `starting` stands for it.
        "vllm 0.22.1: vllm/v1/engine/utils.py (wait_for_engine_startup), vllm/distributed/parallel_state.py",
        "2026-11-20",
        (
            (1, r"Waiting for \d+ local, \d+ remote core engine proc\(s\)", "handshake"),
            (1, r"HELLO from (?:local|remote) core engine process", "handshake"),
            (1, r"world_size=\d+ rank=\d+ .*distributed_init_method=", "handshake"),
        ),
    ),
    *_signs(
        "vllm 0.22.1: vllm/model_executor/model_loader/weight_utils.py, default_loader.py; lines in vllm#38820",
        "2026-11-20",
        (
            (2, _SHARDS, "weights {done} of {all} shards"),
            (2, r"Starting to load model|Loading model from scratch", "loading weights"),
            (
                3,
                r"Loading weights took|Model loading took|Loading model weights took",
                "weights loaded",
            ),
        ),
    ),
    *_signs(
        "vllm 0.22.1: vllm/compilation/backends.py, monitor.py; lines in vllm#38820, #46389",
        "2026-11-20",
        (
            (5, r"torch\.compile (?:took|takes) [\d.]+ s", "compiled"),
            (4, r"Using cache directory: .* for vLLM's torch\.compile", "torch.compile"),
            (4, r"Dynamo bytecode transform time|Compiling a graph for", "torch.compile"),
        ),
    ),
    *_signs(
        "vllm 0.22.1: vllm/v1/core/kv_cache_utils.py, vllm/v1/worker/gpu_model_runner.py; lines in vllm#11349",
        "2026-11-20",
        (
            (6, r"GPU KV cache size:|Available KV cache memory:", "KV cache laid out"),
            (7, rf"Capturing CUDA graphs?\b.*?{_BAR}", "graph capture {done} of {all}"),
            (7, r"Capturing (?:CUDA|cuda)\s?graphs?", "graph capture"),
            (8, r"Graph capturing finished", "graphs captured"),
        ),
    ),
    *_signs(
        "vllm 0.22.1: vllm/entrypoints/openai/api_server.py, launcher.py",
        "2026-11-20",
        ((9, r"Starting vLLM (?:API )?server|Application startup complete", "serving"),),
    ),
)

_ASCEND: tuple[PhaseSign, ...] = (
    *_signs(
        "vllm-ascend 0.22.1rc1: vllm_ascend/worker/model_runner_v1.py; lines in vllm-ascend#2125, #11514",
        "2026-11-20",
        (
            (7, rf"Capturing ACL graphs?\b.*?{_BAR}", "graph capture {done} of {all}"),
            (7, r"Capturing ACL graphs?|Starting to capture ACL graphs", "graph capture"),
            (4, r"Using OOT custom backend for compilation", "torch.compile"),
        ),
    ),
    *_VLLM,
)

_SGLANG: tuple[PhaseSign, ...] = (
    *_signs(
        "sglang 0.5.9: python/sglang/srt/model_executor/model_runner.py",
        "2026-11-20",
        (
            (1, r"Init torch distributed begin", "handshake"),
            (2, _SHARDS, "weights {done} of {all} shards"),
            (2, r"Load weight begin", "loading weights"),
            (3, r"Load weight end", "weights loaded"),
        ),
    ),
    *_signs(
        "sglang 0.5.9: model_runner.py, cuda_graph_runner.py; lines in sglang#12978",
        "2026-11-20",
        (
            (6, r"KV Cache is allocated|max_total_num_tokens=", "KV cache laid out"),
            (7, rf"Capturing batches .*?{_BAR}", "graph capture {done} of {all}"),
            (8, r"Capture (?:\w+ )*(?:cuda|CUDA|npu) graph end", "graphs captured"),
            (7, r"Capture (?:\w+ )*(?:cuda|CUDA|npu) graph begin", "graph capture"),
        ),
    ),
    *_signs(
        "sglang 0.5.9: python/sglang/srt/entrypoints/http_server.py",
        "2026-11-20",
        ((9, r"The server is fired up|Application startup complete", "serving"),),
    ),
)

SIGNS: Mapping[EngineName, tuple[PhaseSign, ...]] = {
    "vllm": _VLLM,
    "vllm-ascend": _ASCEND,
    "sglang": _SGLANG,
}
