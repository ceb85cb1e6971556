"""One engine: how it refuses to start, its ports, its requests, and how it hangs, dies and is told to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.asking import (
    BASE,
    LOCK,
    SERVES,
    Answers,
    answer_of,
    core_of,
    left,
    metrics_of,
    outcome,
    ports_of,
    shown,
)
from tests.conformance.bench import Bench, Running
from tests.conformance.cases import COMPLETIONS, CONTEXT, KEY, MODEL, PROMPT, REQUESTS
from tests.conformance.commands import Refusal
from tests.conformance.heard import LAST_LINES, PREFIX, log_lines
from tests.conformance.processes import children_of
from tests.ports import free_ports


def refusal(bench: Bench, case: Refusal) -> Iterator[tuple[str, Any]]:
    """What is not started at all."""
    running = bench.start(
        free_ports()[0],
        *BASE,
        *case.arguments,
        env=case.env,
        model=bench.model(case.model),
        is_judged=True,
    )
    yield f"refused: {case.name}", left(bench, running)
    if case.is_logged:
        yield (
            f"{PREFIX}refused: {case.name}",
            log_lines(running.output(), bench.folder)[-LAST_LINES:],
        )


def serving(bench: Bench) -> Iterator[tuple[str, Any]]:
    """One engine behind a key: its ports, its requests, then how it hangs and dies."""
    port = free_ports()[0]
    running = bench.start(port, *BASE, "--host", "127.0.0.1", "--api-key", KEY)
    yield "ports: before it serves", bench.wait_serving(running)
    yield "ports: when it serves", ports_of(running, {port: "http"})
    for request in REQUESTS:
        yield request.name, answer_of(bench, port, request)
    yield "metrics: an engine without KV transfer", metrics_of(bench, port)
    yield "ports: an HTTP port that another engine has", _sharing(bench, port)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = bench.start(other.getsockname()[1], *BASE, "--host", "127.0.0.1")
        yield "ports: an HTTP port that another program has", left(bench, taken)
    yield "hang: the engine's core is stopped", _stopped_core(bench, running)
    yield "kill: the engine's core", _killed_core(bench, running)
    yield (
        f"{PREFIX}kill: the engine's core",
        log_lines(running.output(), bench.folder)[-LAST_LINES:],
    )


def _sharing(bench: Bench, port: int) -> Answers:
    """Whether an engine starts on a port where another one serves."""
    second = bench.start(port, *BASE, "--host", "127.0.0.1")
    deadline = time.monotonic() + bench.subject.patience_s
    while time.monotonic() < deadline and second.process.poll() is None:
        if SERVES in second.output():
            break
        time.sleep(0.1)
    code = second.process.poll()
    says = SERVES in second.output()
    bench.end(second)
    return {"says that it serves": says, "exit": code}


def _stopped_core(bench: Bench, running: Running) -> Answers:
    """What an engine still answers while its core does not run, and afterwards."""
    core = core_of(running)
    if core is None:
        return {"core": "no process of its own"}
    os.kill(core, signal.SIGSTOP)
    try:
        health = bench.ask(running.port, "GET", "/health", limit_s=5)
        body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2}
        asked = bench.ask(running.port, "POST", COMPLETIONS, body, headers=LOCK, limit_s=10)
        gauge = bench.ask(running.port, "GET", "/metrics", limit_s=5).get("raw", "")
    finally:
        os.kill(core, signal.SIGCONT)
    after = bench.ask(running.port, "POST", COMPLETIONS, body, headers=LOCK)
    return {
        "core": "a process of its own",
        "health": outcome(health),
        "request": outcome(asked),
        "metrics": "answer" if "vllm:" in gauge else "none",
        "request when it goes on": outcome(after),
    }


def _killed_core(bench: Bench, running: Running) -> Answers:
    """What an engine answers and how it leaves when its core has been killed."""
    core = core_of(running)
    if core is None:
        running.process.kill()
        return {"core": "no process of its own", "exit": bench.wait_left(running)}
    os.kill(core, signal.SIGKILL)
    time.sleep(1)
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2}
    asked = bench.ask(running.port, "POST", COMPLETIONS, body, headers=LOCK)
    health = bench.ask(running.port, "GET", "/health", limit_s=5)
    code = bench.wait_left(running)
    return {
        "core": "a process of its own",
        "request": outcome(asked),
        "health": outcome(health),
        "exit": code,
    }


def told_to_stop(bench: Bench, running: Running, number: signal.Signals) -> Answers:
    """What becomes of a request in flight, and the exit code."""
    answers: list[Answers] = []
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": CONTEXT - 60, "ignore_eos": True}
    asking = threading.Thread(
        target=lambda: answers.append(bench.ask(running.port, "POST", COMPLETIONS, body))
    )
    family = children_of(running.process.pid)
    with _flight(asking, is_used=number == signal.SIGTERM):
        running.process.send_signal(number)
        code = bench.wait_left(running)
    left_behind = [pid for pid in family if _is_alive(pid)]
    return {
        "request": shown(answers[0]) if answers else None,
        "exit": code,
        "processes left": len(left_behind),
        "port": "free" if _is_free(running.port) else "taken",
    }


def _is_alive(pid: int) -> bool:
    """Whether a process still runs after some seconds of grace; one that nobody has collected does not."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


@contextmanager
def _flight(asking: threading.Thread, *, is_used: bool) -> Iterator[None]:
    """A request that is under way."""
    if not is_used:
        yield
        return
    asking.start()
    time.sleep(0.15)
    yield
    asking.join()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
