"""Two data-parallel ranks: whether they meet, what one of them is worth without the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.asking import BASE, Answers, metrics_of, outcome, ports_of, shown
from tests.conformance.bench import Bench, Running
from tests.conformance.cases import COMPLETIONS, MODEL, PROMPT
from tests.conformance.heard import LAST_LINES, PREFIX, log_lines
from tests.conformance.shapes import last_error
from tests.ports import free_ports

# What vLLM says when its coordinator has not started within 30 s: of the machine, not of the engine.
TOO_SLOW = "DP Coordinator process failed to report"
ATTEMPTS = 3
TOKENS = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "ignore_eos": True}


class MachineTooSlow(Exception):
    """An engine gave up waiting for a process of its own, again and again."""


def meet(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Ranks that meet; on processors the engine lacks what they need afterwards."""
    yield "handshake: two ranks", _met(bench)


def headless(bench: Bench) -> Iterator[tuple[str, Any]]:
    """A rank without an HTTP server among such that have one."""
    yield "handshake: a headless rank", _met(bench, "--headless")


def at_work(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Two ranks that serve: what they answer, and what is left of them when one hangs or dies."""
    ranks = _start_two(bench, env=bench.subject.lent_collectives(bench.folder))
    for rank in ranks:
        bench.wait_serving(rank)
    for number, rank in enumerate(ranks):
        yield f"group: ports of rank {number}", _ports_of_rank(rank)
        answer = bench.ask(rank.port, "POST", COMPLETIONS, TOKENS)
        yield f"group: two tokens of rank {number}", shown(answer)
        yield f"group: metrics of rank {number}", metrics_of(bench, rank.port)
    for header in ("0", "1"):
        asked = bench.ask(
            ranks[1].port, "POST", COMPLETIONS, TOKENS, headers={"X-data-parallel-rank": header}
        )
        yield f"group: rank {header} asked for at rank 1's port", shown(asked)
    yield "hang: rank 1 of two", _stopped(bench, ranks)
    yield "kill: rank 1 of two", _killed(bench, ranks)
    said = log_lines(ranks[0].output(), bench.folder)[-LAST_LINES:]
    yield f"{PREFIX}rank 0 after rank 1 was killed", said


def _start_two(bench: Bench, *second: str, env: Mapping[str, str] | None = None) -> list[Running]:
    """Two ranks; the second is started when the first one's coordinator runs.

    vLLM gives that 30 s to import what an engine imports: on a busy machine it comes first, and alone.
    """
    rpc = str(free_ports()[0])
    same = ("-dp", "2", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", rpc)
    started = []
    for rank, more in enumerate(((), second)):
        place = ("--host", "127.0.0.1", "--data-parallel-rank", str(rank))
        words = (*BASE, *same, *place, *more)
        started.append(bench.start(free_ports()[0], *words, env=env))
        if rank == 0 and bench.subject.coordinator_sign:
            bench.hurry(started[0])
            bench.wait_said(started[0], bench.subject.coordinator_sign)
            bench.hurry(started[0], 0)
    return started


def _met(bench: Bench, *second: str, env: Mapping[str, str] | None = None) -> Answers:
    """Whether two ranks serve, or how the first of them leaves.

    Raises:
        MachineTooSlow: the coordinator was not there in time, several times over.
    """
    for _ in range(ATTEMPTS):
        answer = _met_once(bench, _start_two(bench, *second, env=env))
        if TOO_SLOW not in str(answer):
            return answer
    raise MachineTooSlow(TOO_SLOW)


def _met_once(bench: Bench, ranks: list[Running]) -> Answers:
    deadline = time.monotonic() + bench.subject.patience_s
    result: Answers = {"rank 0 and 1": "neither serves nor leaves"}
    while time.monotonic() < deadline:
        ended = [rank for rank in ranks if rank.process.poll() is not None]
        if ended:
            result = {
                "rank 0 and 1": "one has left",
                "exit": ended[0].process.returncode,
                "error": last_error(ended[0].output()),
            }
            break
        if all(
            bench.ask(rank.port, "GET", "/health", limit_s=5).get("status") == 200 for rank in ranks
        ):
            result = {"rank 0 and 1": "both serve"}
            break
        time.sleep(0.2)
    for rank in ranks:
        bench.end(rank)
    return result


def _ports_of_rank(rank: Running) -> Answers:
    return ports_of(rank, {rank.port: "http"})


def _stopped(bench: Bench, ranks: list[Running]) -> Answers:
    """What both answer while all processes of rank 1 do not run, and afterwards."""
    os.killpg(ranks[1].process.pid, signal.SIGSTOP)
    try:
        asked = bench.ask(ranks[0].port, "POST", COMPLETIONS, TOKENS, limit_s=bench.subject.hang_s)
        health = bench.ask(ranks[0].port, "GET", "/health", limit_s=5)
        silent = bench.ask(ranks[1].port, "GET", "/health", limit_s=bench.subject.hang_s)
    finally:
        os.killpg(ranks[1].process.pid, signal.SIGCONT)
    after = [bench.ask(rank.port, "POST", COMPLETIONS, TOKENS) for rank in ranks]
    return {
        "request to rank 0": outcome(asked),
        "health of rank 0": outcome(health),
        "health of rank 1": outcome(silent),
        "requests when it goes on": [outcome(answer) for answer in after],
    }


def _killed(bench: Bench, ranks: list[Running]) -> Answers:
    """What rank 0 answers and whether it leaves after all processes of rank 1 were killed."""
    bench.end(ranks[1])
    time.sleep(1)
    health = bench.ask(ranks[0].port, "GET", "/health", limit_s=5)
    asked = bench.ask(ranks[0].port, "POST", COMPLETIONS, TOKENS, limit_s=bench.subject.hang_s)
    later = bench.ask(ranks[0].port, "GET", "/health", limit_s=5)
    bench.wait_left(ranks[0], limit_s=2 * bench.subject.hang_s)
    return {
        "health of rank 0": outcome(health),
        "request to rank 0": outcome(asked),
        "health after it": outcome(later),
        "exit of rank 0": ranks[0].process.poll(),
        "error of rank 0": last_error(ranks[0].output()),
    }
