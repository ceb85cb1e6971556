"""What a case asks of a running engine, and what of the answer is kept."""

from __future__ import annotations

import re
import time
from typing import Any

from tests.conformance.bench import Bench, Running
from tests.conformance.cases import CONTEXT, KEY, MODEL, Request
from tests.conformance.processes import children_of, listening_ports
from tests.conformance.shapes import last_error

Answers = dict[str, Any]

BASE = (
    "--served-model-name", MODEL, "also-tiny", "--enforce-eager", "--dtype", "bfloat16",
    "--max-model-len", str(CONTEXT), "--max-num-seqs", "4",
)  # fmt: skip
LOCK = {"Authorization": f"Bearer {KEY}"}
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
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def left(bench: Bench, running: Running) -> Answers:
    """How an engine that does not start ends: its exit code and error, or that it stays.

    One that has said its error and then nothing for `quiet_s` stays for ever.
    """
    deadline, size, since = time.monotonic() + bench.subject.patience_s, -1, time.monotonic()
    answer: Answers = {}
    while time.monotonic() < deadline and running.process.poll() is None:
        output = running.output()
        if SERVES in output:
            answer = {"serves": True}
            break
        if len(output) != size:
            size, since = len(output), time.monotonic()
        if time.monotonic() - since > bench.subject.quiet_s and last_error(output):
            break
        time.sleep(0.1)
    answer = {"exit": running.process.poll(), "error": last_error(running.output()), **answer}
    bench.end(running)
    return answer


def answer_of(bench: Bench, port: int, request: Request) -> Answers:
    """The answer to a request of the cases."""
    headers = {**(LOCK if request.key else {}), **request.headers}
    answer = bench.ask(port, request.method, request.path, request.body, headers=headers)
    return shown(answer, request.hides)


def shown(answer: Answers, hides: tuple[str, ...] = ()) -> Answers:
    """An answer without its raw text and what depends on the model's words."""
    kept = {key: value for key, value in answer.items() if key != "raw"}
    for path in hides:
        _hide(kept.get("body"), path.split("."))
    return kept


def outcome(answer: Answers) -> Any:
    """Of an answer its status, or how it failed to come."""
    return answer.get("status", answer.get("failed"))


def _hide(value: Any, path: list[str]) -> None:
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
    """The labels of each metric that production reads, with the rank's own; None for one that is not there."""
    text = bench.ask(port, "GET", "/metrics").get("raw", "")
    found: Answers = {}
    for name in METRICS:
        match = re.search(rf"^{re.escape(name)}(?:\{{(.*)\}})? ", text, re.MULTILINE)
        labels = dict(_LABEL.findall(match[1] or "")) if match else None
        if labels is not None:
            own = ("engine", "num_gpu_blocks") if name == "vllm:cache_config_info" else labels
            found[name] = {
                key: value if key in ("engine", "model_name") else "<value>"
                for key, value in sorted(labels.items())
                if key in own
            }
        else:
            found[name] = None
    return found


def core_of(running: Running) -> int | None:
    """The process that computes, where it is not the one that answers."""
    named = children_of(running.process.pid)
    return next((pid for pid, name in named.items() if "EngineCore" in name), None)
