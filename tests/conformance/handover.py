"""Prefill and decode with NIXL: their ports, what they hand over, and what they refuse of each other."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

from tests.conformance.alone import told_to_stop
from tests.conformance.asking import BASE, Answers, left, metrics_of, outcome, ports_of, shown
from tests.conformance.bench import Bench, Running
from tests.conformance.cases import CHAT, COMPLETIONS, MODEL, PREFILL, PROMPT
from tests.conformance.heard import PREFIX, log_lines, metric_lines
from tests.ports import free_ports

SIDE_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
SIDE_HOST = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}
LONG_PROMPT = f"{PROMPT} " * 20


def pair(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Prefill and decode, then how each is told to stop."""
    ports, sides = free_ports(2), free_ports(2)
    engines = [
        _start(bench, port, side, role)
        for port, side, role in zip(ports, sides, ("kv_producer", "kv_consumer"), strict=True)
    ]
    for running in engines:
        bench.wait_serving(running)
    for name, running in zip(("prefill", "decode"), engines, strict=True):
        yield f"{PREFIX}start of {name}", log_lines(running.output(), bench.folder)
    for name, running, port, side in zip(("prefill", "decode"), engines, ports, sides, strict=True):
        known = {port: "http", side: "side channel"}
        yield f"side channel: ports of {name}", ports_of(running, known)
    yield from _transfers(bench, *ports)
    yield from _wrong(bench, *ports)
    yield from _unlike(bench, ports[0])
    clash = _start(bench, free_ports()[0], sides[0], "kv_producer")
    yield "side channel: a port that is taken", left(bench, clash)
    yield (
        "shutdown: SIGTERM with a request in flight",
        told_to_stop(bench, engines[0], signal.SIGTERM),
    )
    yield "shutdown: SIGINT", told_to_stop(bench, engines[1], signal.SIGINT)


def _start(bench: Bench, port: int, side: int, role: str, *, is_other: bool = False) -> Running:
    """An engine of one role; the other model has the same bytes and another path."""
    model = bench.model("copy" if is_other else "tiny")
    env = {**SIDE_HOST, SIDE_PORT: str(side)}
    return bench.start(port, *BASE, "--host", "127.0.0.1", *_nixl(role), env=env, model=model)


def _nixl(role: str) -> tuple[str, ...]:
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_load_failure_policy": "fail",
        "kv_buffer_device": "cpu",
    }
    return ("--kv-transfer-config", json.dumps(config))


def _asked(**more: Any) -> Answers:
    """A request to a prefill rank, as the router sends it."""
    long = {"model": MODEL, "prompt": LONG_PROMPT, "temperature": 0, "max_tokens": 1}
    return {**long, "kv_transfer_params": PREFILL, **more}


def _prefilled(bench: Bench, port: int) -> Answers:
    """What a prefill rank answers about its KV cache."""
    answer = bench.ask(port, "POST", COMPLETIONS, _asked())
    params: Answers = json.loads(answer["raw"])["kv_transfer_params"]
    return params


def _decoded(
    bench: Bench, port: int, params: Any, *, limit_s: float | None = None, **more: Any
) -> Answers:
    """What a decode rank answers to a request with KV parameters."""
    body = {"model": MODEL, "prompt": LONG_PROMPT, "temperature": 0, "max_tokens": 4}
    body = {**body, "ignore_eos": True, "kv_transfer_params": params, **more}
    return shown(bench.ask(port, "POST", COMPLETIONS, body, limit_s=limit_s))


def _transfers(bench: Bench, prefill: int, decode: int) -> Iterator[tuple[str, Any]]:
    """KV parameters in requests and answers."""
    first = bench.ask(prefill, "POST", COMPLETIONS, _asked())
    yield "KV parameters: what prefill answers", shown(first)
    params = json.loads(first["raw"])["kv_transfer_params"]
    yield "KV parameters: decode with them", _decoded(bench, decode, params)
    yield "KV parameters: decode with them again", _decoded(bench, decode, params)
    bare = {"model": MODEL, "prompt": LONG_PROMPT, "temperature": 0, "max_tokens": 4}
    bare = {**bare, "ignore_eos": True}
    yield "KV parameters: decode without any", shown(bench.ask(decode, "POST", COMPLETIONS, bare))
    several = _asked(max_tokens=4, ignore_eos=True)
    yield (
        "KV parameters: prefill of four tokens",
        shown(bench.ask(prefill, "POST", COMPLETIONS, several)),
    )
    ended = _asked(max_tokens=4, logit_bias={"0": 100})
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
    yield (
        "KV parameters: prefill in a stream",
        shown(bench.ask(prefill, "POST", COMPLETIONS, _asked(stream=True))),
    )
    yield (
        "KV parameters: a prompt shorter than a block",
        shown(bench.ask(prefill, "POST", COMPLETIONS, _asked(prompt="fox"))),
    )
    yield (
        "KV parameters: that are no map",
        shown(bench.ask(prefill, "POST", COMPLETIONS, _asked(kv_transfer_params=1))),
    )
    yield "metrics: decode after a transfer", metrics_of(bench, decode)
    text = bench.ask(decode, "GET", "/metrics").get("raw", "")
    yield f"{PREFIX}metrics of decode", metric_lines(text)


def _wrong(bench: Bench, prefill: int, decode: int) -> Iterator[tuple[str, Any]]:
    """KV parameters that no prefill rank has answered; each prompt is new, so that no cache has it."""
    cases: dict[str, Answers] = {
        "a prefill host that does not answer": {
            "remote_host": "127.0.0.9",
            "remote_engine_id": "a",
        },
        "a prefill port that nobody has": {"remote_port": 1, "remote_engine_id": "b"},
        "another engine than answers": {"remote_engine_id": "c"},
        "a host that is null": {"remote_host": None, "remote_engine_id": "d"},
        "a port that is null": {"remote_port": None, "remote_engine_id": "e"},
        "an engine that is null": {"remote_engine_id": None},
    }
    for number, (name, changed) in enumerate(cases.items(), start=1):
        params = {**_prefilled(bench, prefill), **changed}
        prompt = f"{'fox ' * number}{LONG_PROMPT}"
        yield f"KV parameters: {name}", _decoded(bench, decode, params, prompt=prompt)
    params = {**_prefilled(bench, prefill), "remote_host": "127.0.0.9", "remote_engine_id": "f"}
    yield (
        "KV parameters: a prefill host that does not answer, in a stream",
        _decoded(bench, decode, params, prompt=f"dog {LONG_PROMPT}", stream=True),
    )


def _unlike(bench: Bench, prefill: int) -> Iterator[tuple[str, Any]]:
    """A decode rank whose model lies elsewhere than the prefill rank's; in the end a request kills it."""
    port, side = free_ports(2)
    running = _start(bench, port, side, "kv_consumer", is_other=True)
    bench.wait_serving(running)
    answer = _decoded(bench, port, _prefilled(bench, prefill))
    told = "NIXL compatibility hash mismatch" in running.output()
    yield "handover: the same model under another path", {**answer, "hash mismatch logged": told}
    params = _prefilled(bench, prefill)
    lacking = {key: value for key, value in params.items() if key != "remote_host"}
    asked = _decoded(
        bench, port, lacking, prompt=f"fox {LONG_PROMPT}", limit_s=bench.subject.hang_s
    )
    yield "KV parameters: without a host", {"request": outcome(asked)}
    without = {**params, "remote_block_ids": None}
    asked = _decoded(bench, port, without, prompt=f"dog {LONG_PROMPT}")
    code = bench.wait_left(running, limit_s=2 * bench.subject.hang_s)
    yield "KV parameters: blocks that are null", {"request": outcome(asked), "exit": code}
