"""Phases of a start, read from lines that engines have logged (their sources stand in `phases.SIGNS`)."""

# ruff: noqa: E501 - recorded lines stay whole

from __future__ import annotations

import pytest

from infra.engines.phases import SIGNS, read_phase
from infra.spec.stack import EngineName

WORKER = "(Worker_TP0 pid=34322) "


@pytest.mark.parametrize(
    ("engine", "line", "words"),
    [
        # vllm#38820
        ("vllm", "Loading safetensors checkpoint shards:  58% Completed | 37/64 [00:13<00:11,  2.87s/it]", "weights 37 of 64 shards"),
        ("vllm", WORKER + "INFO 05-06 20:59:57 [default_loader.py:384] Loading weights took 24.84 seconds", "weights loaded"),
        ("vllm", WORKER + "INFO 05-06 21:00:16 [backends.py:1069] Using cache directory: /x/backbone for vLLM's torch.compile", "torch.compile"),
        # vllm#46389
        ("vllm", WORKER + "INFO 06-23 14:53:25 [monitor.py:53] torch.compile took 14.85 s in total", "compiled"),
        ("vllm", "(APIServer pid=1) DEBUG 08-06 10:17:28 [utils.py:741] Waiting for 1 local, 3 remote core engine proc(s) to start.", "handshake"),
        ("vllm", "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  43%|####3     | 15/35 [00:05<00:08,  2.5it/s]", "graph capture 15 of 35"),
        # a bar that draws over itself is one line of the journal
        ("vllm", "Capturing CUDA graphs (decode, FULL):   0%|          | 0/35 [00:00<?]\rCapturing CUDA graphs (decode, FULL):  20%|##        | 7/35 [00:05<00:08]", "graph capture 7 of 35"),
        # vllm#11349
        ("vllm", "INFO 12-19 22:58:41 model_runner.py:1535] Graph capturing finished in 14 secs, took 0.21 GiB", "graphs captured"),
        # vllm-ascend#11514
        ("vllm-ascend", "Loading safetensors checkpoint shards:  11% Completed | 11/100 [00:01<00:15,  5.62it/s]", "weights 11 of 100 shards"),
        ("vllm-ascend", "Capturing ACL graphs (mixed prefill-decode, PIECEWISE):   0%| | 0/9 [00:00<?, ?it/s]", "graph capture 0 of 9"),
        ("sglang", "[2025-01-23 19:35:14 TP0] Init torch distributed begin.", "handshake"),
        ("sglang", "[2026-02-26 05:20:20 TP7] Load weight begin. avail mem=283.62 GB", "loading weights"),
        ("sglang", "Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:00<00:00, 2.34it/s]", "weights 2 of 2 shards"),
        # sglang#12978
        ("sglang", "Capturing batches (bs=1 avail_mem=11.18 GB): 100%|##########| 36/36 [00:10<00:00,  3.37it/s]", "graph capture 36 of 36"),
        ("sglang", "[2025-11-10 19:59:09 TP1] Capture cuda graph end. Time elapsed: 11.35 s. mem usage=1.04 GB.", "graphs captured"),
    ],
)  # fmt: skip
def test_a_line_tells_its_phase(engine: EngineName, line: str, words: str) -> None:
    phase = read_phase(engine, [line])
    assert phase is not None
    assert phase.words == words


def test_the_latest_telling_line_counts() -> None:
    lines = [
        "Loading safetensors checkpoint shards: 100% Completed | 64/64",
        "INFO 11-20 14:00:00 [kv_cache_utils.py:1307] GPU KV cache size: 194,040 tokens",
        "WARNING something that tells nothing",
    ]
    phase = read_phase("vllm", lines)
    assert phase is not None
    assert (phase.step, phase.words) == (6, "KV cache laid out")


def test_lines_that_tell_nothing_tell_no_phase() -> None:
    assert read_phase("vllm", []) is None
    assert read_phase("sglang", ["Traceback (most recent call last):"]) is None


def test_further_is_greater() -> None:
    early = read_phase("vllm", ["Loading safetensors checkpoint shards:  11% Completed | 7/64"])
    late = read_phase("vllm", ["Loading safetensors checkpoint shards:  58% Completed | 37/64"])
    graphs = read_phase("vllm", ["Graph capturing finished in 14 secs, took 0.21 GiB"])
    assert early is not None
    assert late is not None
    assert graphs is not None
    assert early < late < graphs


@pytest.mark.parametrize("engine", sorted(SIGNS))
def test_every_sign_says_where_it_is_from(engine: EngineName) -> None:
    assert all(sign.source and sign.checked for sign in SIGNS[engine])
