"""What production reads of an engine, tried on what the released one said while it was recorded."""

from __future__ import annotations

from typing import Any

import pytest

from infra.engines.phases import read_phase
from infra.engines.serving import generated_tokens, open_requests, progress_metrics
from infra.launch.unit_states import error_line, is_own_error, says_serving
from infra.rehearsal.real_engines import ANSWERED, TRANSFERS, total
from tests.conformance.heard import PREFIX
from tests.conformance.page import recorded

# In the order of a start; on processors no graphs are captured.
PHASES = [
    "handshake",
    "loading weights",
    "weights 0 of 1 shards",
    "weights 1 of 1 shards",
    "weights loaded",
    "KV cache laid out",
    "serving",
]


def log(name: str) -> list[str]:
    lines: list[str] = recorded()[PREFIX + name]
    return lines


def phases(lines: list[str]) -> list[Any]:
    """Every phase that an operator would have been told of, each once, as the lines came."""
    told: list[Any] = []
    for line in lines:
        phase = read_phase("vllm", [line])
        if phase is not None and (not told or told[-1] != phase):
            told.append(phase)
    return told


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_phases_of_a_real_start_are_told_in_order(role: str) -> None:
    told = phases(log(f"start of {role}"))
    assert [phase.words for phase in told] == PHASES
    assert [phase.step for phase in told] == sorted(phase.step for phase in told)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_start_says_that_it_serves_when_it_does(role: str) -> None:
    lines = log(f"start of {role}")
    first = next(number for number, line in enumerate(lines) if says_serving([line]))
    assert "Application startup complete" in lines[first]
    assert not says_serving(lines[:first])


def test_counters_of_a_real_decode_rank_are_read() -> None:
    text = "\n".join(log("metrics of decode"))
    tokens = generated_tokens("vllm", text, 0)
    assert tokens is not None
    assert tokens > 0
    assert generated_tokens("vllm", text, 1) is None
    assert open_requests("vllm", text) == 0
    open_ones, grow = progress_metrics("vllm")
    assert all(f"\n{name}{{" in f"\n{text}" for name in (*open_ones, *grow))
    assert total(text, ANSWERED) >= 2
    assert total(text, TRANSFERS) >= 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_nothing_in_a_good_start_is_taken_for_a_failure(role: str) -> None:
    assert [line for line in log(f"start of {role}") if is_own_error(line)] == []


def test_the_first_failure_of_a_rank_that_lost_another_is_that() -> None:
    lines = log("rank 0 after rank 1 was killed")
    first = next(line for line in lines if is_own_error(line))
    assert "Connection closed by peer" in first


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("refused: unknown flag", "unrecognized arguments: --no-such-flag 1"),
        ("refused: longer than the model's context", "max_model_len (400000) is greater than"),
        ("refused: hybrid without local ranks", "data_parallel_size_local must be set"),
        ("refused: port out of a service's address", "VLLM_PORT 'tcp://192.0.2.1:8000' appears"),
        ("refused: host that is not this one", "Cannot assign requested address"),
        ("rank 0 after rank 1 was killed", "Connection closed by peer"),
    ],
)
def test_the_last_words_of_a_real_engine_give_the_reason(name: str, reason: str) -> None:
    assert reason in error_line(log(name))
