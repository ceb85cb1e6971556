"""The suite: every case put to one subject, each answer as plain data."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.cases import (
    CHAT,
    COMPLETIONS,
    CONTEXT,
    KEY,
    MODEL,
    PREFILL,
    PROMPT,
    REFUSALS,
    REQUESTS,
    Request,
)
from tests.conformance.shapes import last_error
from tests.conformance.subjects import (
    Bench,
    Running,
    children_of,
    listening_ports,
)
from tests.rehearsal.engine.simulated_host import free_ports

Answers = dict[str, Any]
Say = Callable[[str], None]

BASE = ("--served-model-name", MODEL, "also-tiny", "--enforce-eager", "--dtype", "bfloat16",
        "--max-model-len", str(CONTEXT), "--max-num-seqs", "4")  # fmt: skip
LOCK = {"Authorization": f"Bearer {KEY}"}
SIDE_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
SIDE_HOST = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}
SERVES = "Application startup complete"
METRICS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:cache_config_info",
    "vllm:nixl_xfer_time_seconds_count",
)


def run_suite(bench: Bench, say: Say) -> Answers:
    """Every case's answer, by `group: case`, in the order of the suite."""
    parts = (refusals, serving, pair, groups)
    answers: Answers = {}
    for part in parts:
        for name, answer in part(bench):
            say(name)
            answers[name] = answer
    return answers


def refusals(bench: Bench) -> Iterator[tuple[str, Any]]:
    """What is not started at all."""
    for case in REFUSALS:
        running = bench.start(free_ports()[0], *BASE, *case.arguments, env=case.env)
        yield f"refused: {case.name}", left(bench, running)


def left(bench: Bench, running: Running) -> Answers:
    """How an engine that ends by itself ends."""
    code = bench.wait_left(running)
    bench.end(running)
    return {"exit": code, "error": last_error(running.output())}


def serving(bench: Bench) -> Iterator[tuple[str, Any]]:
    """One engine behind a key: its ports, its requests, then how it hangs and dies."""
    port = free_ports()[0]
    running = bench.start(port, *BASE, "--host", "127.0.0.1", "--api-key", KEY)
    yield "ports: before it serves", bench.wait_serving(running)
    yield "ports: when it serves", ports_of(running, {port: "http"})
    for request in REQUESTS:
        yield request.name, answer_of(bench, port, request)
    yield "metrics: an engine without KV transfer", metrics_of(bench, port)
    yield "ports: an HTTP port that another engine has", sharing(bench, port)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = bench.start(other.getsockname()[1], *BASE, "--host", "127.0.0.1")
        yield "ports: an HTTP port that another program has", left(bench, taken)
    yield "hang: the engine's core is stopped", stopped_core(bench, running)
    yield "kill: the engine's core", killed_core(bench, running)


def sharing(bench: Bench, port: int) -> Answers:
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


def pair(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Prefill and decode with NIXL, then how each is told to stop."""
    ports, sides = free_ports(2), free_ports(2)
    engines = [
        bench.start(port, *BASE, "--host", "127.0.0.1", *nixl(role), env={**SIDE_HOST, SIDE_PORT: str(side)})
        for port, side, role in zip(ports, sides, ("kv_producer", "kv_consumer"), strict=True)
    ]  # fmt: skip
    for running in engines:
        bench.wait_serving(running)
    for name, running, port, side in zip(("prefill", "decode"), engines, ports, sides, strict=True):
        yield (
            f"side channel: ports of {name}",
            ports_of(running, {port: "http", side: "side channel"}),
        )
    yield from transfers(bench, *ports)
    clash = bench.start(
        free_ports()[0], *BASE, *nixl("kv_producer"), env={**SIDE_HOST, SIDE_PORT: str(sides[0])}
    )
    yield "side channel: a port that is taken", left(bench, clash)
    yield (
        "shutdown: SIGTERM with a request in flight",
        told_to_stop(bench, engines[0], signal.SIGTERM),
    )
    yield "shutdown: SIGINT", told_to_stop(bench, engines[1], signal.SIGINT)


def transfers(bench: Bench, prefill: int, decode: int) -> Iterator[tuple[str, Any]]:
    """KV parameters in requests and answers."""
    long = {"model": MODEL, "prompt": f"{PROMPT} " * 20, "temperature": 0}
    asked = {**long, "max_tokens": 1, "kv_transfer_params": PREFILL}
    first = bench.ask(prefill, "POST", COMPLETIONS, asked)
    yield "KV parameters: what prefill answers", shown(first)
    params = json.loads(first["raw"])["kv_transfer_params"]
    more = {**long, "max_tokens": 4, "ignore_eos": True}

    def decoded(**changed: Any) -> Answers:
        given = {**params, **changed}
        return shown(bench.ask(decode, "POST", COMPLETIONS, {**more, "kv_transfer_params": given}))

    yield "KV parameters: decode with them", decoded()
    yield "KV parameters: decode with them again", decoded()
    yield "KV parameters: decode without any", shown(bench.ask(decode, "POST", COMPLETIONS, more))
    several = {**asked, "max_tokens": 4, "ignore_eos": True}
    yield (
        "KV parameters: prefill of four tokens",
        shown(bench.ask(prefill, "POST", COMPLETIONS, several)),
    )
    ended = {**asked, "max_tokens": 4, "logit_bias": {"0": 100}}
    answer = shown(
        bench.ask(prefill, "POST", COMPLETIONS, ended),
        hides=("usage", "choices", "kv_transfer_params.remote_num_tokens"),
    )
    yield "KV parameters: prefill that ends before its limit", answer
    chatted = {
        "model": MODEL,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 1,
        "kv_transfer_params": PREFILL,
    }
    yield "KV parameters: prefill of a chat", shown(bench.ask(prefill, "POST", CHAT, chatted))
    streamed = {**asked, "stream": True}
    yield (
        "KV parameters: prefill in a stream",
        shown(bench.ask(prefill, "POST", COMPLETIONS, streamed)),
    )
    yield (
        "KV parameters: a prompt shorter than a block",
        shown(bench.ask(prefill, "POST", COMPLETIONS, {**asked, "prompt": "fox"})),
    )
    yield (
        "KV parameters: that are no map",
        shown(bench.ask(prefill, "POST", COMPLETIONS, {**asked, "kv_transfer_params": 1})),
    )
    yield "metrics: decode after a transfer", metrics_of(bench, decode)
    again = json.loads(bench.ask(prefill, "POST", COMPLETIONS, asked)["raw"])["kv_transfer_params"]
    params = again
    yield (
        "KV parameters: a prefill host that does not answer",
        decoded(remote_host="127.0.0.9", remote_engine_id="other"),
    )


def groups(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Two data-parallel ranks that meet, differ, or should not be headless."""

    def ranks(*second: str) -> Answers:
        rpc = free_ports()[0]
        same = (
            "-dp",
            "2",
            "--data-parallel-address",
            "127.0.0.1",
            "--data-parallel-rpc-port",
            str(rpc),
        )
        started = []
        for rank, more in enumerate(((), second)):
            place = ("--host", "127.0.0.1", "--data-parallel-rank", str(rank))
            started.append(bench.start(free_ports()[0], *BASE, *same, *place, *more))
        return met(bench, started)

    yield "handshake: two ranks", ranks()
    yield "handshake: ranks with other flags", ranks("--enable-expert-parallel")
    yield "handshake: a headless rank", ranks("--headless")


def met(bench: Bench, ranks: list[Running]) -> Answers:
    """Whether two ranks serve, or how the first of them leaves."""
    deadline = time.monotonic() + bench.subject.patience_s
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
    else:
        result = {"rank 0 and 1": "neither serves nor leaves"}
    for rank in ranks:
        bench.end(rank)
    return result


def nixl(role: str) -> tuple[str, ...]:
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_load_failure_policy": "fail",
        "kv_buffer_device": "cpu",
    }
    return ("--kv-transfer-config", json.dumps(config))


def answer_of(bench: Bench, port: int, request: Request) -> Answers:
    headers = {**(LOCK if request.key else {}), **request.headers}
    answer = bench.ask(port, request.method, request.path, request.body, headers=headers)
    return shown(answer, request.hides)


def shown(answer: Answers, hides: tuple[str, ...] = ()) -> Answers:
    """An answer without its raw text and what depends on the model's words."""
    kept = {key: value for key, value in answer.items() if key != "raw"}
    for path in hides:
        hide(kept.get("body"), path.split("."))
    return kept


def hide(value: Any, path: list[str]) -> None:
    """Put `<hidden>` at a path of maps and lists, where there is something but None."""
    *inner, last = path
    for step in inner:
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict) and value.get(last) is not None:
        value[last] = "<hidden>"


def ports_of(running: Running, known: dict[int, str]) -> Answers:
    """Where an engine listens: address by the use of the port; ports of its own choice are counted as one."""
    found: dict[str, str] = {}
    for port, address in listening_ports(running.process.pid).items():
        found[known.get(port, "chosen by itself")] = address
    return dict(sorted(found.items()))


def metrics_of(bench: Bench, port: int) -> Answers:
    """The labels of each metric that production reads; None for one that is not there."""
    text = bench.ask(port, "GET", "/metrics").get("raw", "")
    found: Answers = {}
    for name in METRICS:
        match = re.search(rf"^{re.escape(name)}(?:\{{(.*)\}})? ", text, re.MULTILINE)
        labels = re.findall(r'(\w+)="', match[1] or "") if match else None
        if name == "vllm:cache_config_info" and labels:
            labels = [label for label in labels if label in ("engine", "num_gpu_blocks")]
        found[name] = labels if labels is None else sorted(labels)
    return found


def stopped_core(bench: Bench, running: Running) -> Answers:
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
        "health": health.get("status", health.get("failed")),
        "request": asked.get("status", asked.get("failed")),
        "metrics": "answer" if "vllm:" in gauge else "none",
        "request when it goes on": after.get("status", after.get("failed")),
    }


def killed_core(bench: Bench, running: Running) -> Answers:
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
        "request": asked.get("status", asked.get("failed")),
        "health": health.get("status", health.get("failed")),
        "exit": code,
    }


def core_of(running: Running) -> int | None:
    """The process that computes, where it is not the one that answers."""
    named = children_of(running.process.pid)
    return next((pid for pid, name in named.items() if "EngineCore" in name), None)


def told_to_stop(bench: Bench, running: Running, number: signal.Signals) -> Answers:
    """What becomes of a request in flight, and the exit code."""
    answers: list[Answers] = []
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": CONTEXT - 60, "ignore_eos": True}
    asking = threading.Thread(
        target=lambda: answers.append(bench.ask(running.port, "POST", COMPLETIONS, body))
    )
    family = children_of(running.process.pid)
    with flight(asking, is_used=number == signal.SIGTERM):
        running.process.send_signal(number)
        code = bench.wait_left(running)
    left_behind = [pid for pid in family if is_alive(pid)]
    return {
        "request": shown(answers[0]) if answers else None,
        "exit": code,
        "processes left": len(left_behind),
        "port": "free" if is_free(running.port) else "taken",
    }


def is_alive(pid: int) -> bool:
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
def flight(asking: threading.Thread, *, is_used: bool) -> Iterator[None]:
    """A request that is under way."""
    if not is_used:
        yield
        return
    asking.start()
    time.sleep(0.15)
    yield
    asking.join()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
