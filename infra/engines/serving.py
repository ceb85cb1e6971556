"""How an engine is asked over HTTP: completions, the rank header, KV-transfer parameters, counters.

Sources: vllm 0.22.1 entrypoints/openai and v1/engine (rank header counts within the server); vllm-router 0.1.17
and vllm-ascend's proxy, requests recorded 2026-11-20; sglang 0.5.9 io_struct.py (data_parallel_rank, bootstrap_*);
vllm mooncake_connector.py 0.22.1 (transfer_id, /query).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

from infra.engines.command_line import as_map
from infra.spec.bounded import is_whole_number
from infra.spec.stack import EngineName

RANK_HEADER = "X-data-parallel-rank"
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HEALTH = "/health"
HEALTH_GENERATE = "/health_generate"
MODELS = "/v1/models"
METRICS = "/metrics"
BOOTSTRAP_QUERY = "/query"
KV_PARAMS = "kv_transfer_params"

# What a prefill rank's answer carries over to the decode rank: by a key of the answer, by a transfer both
# are told of beforehand, or by SGLang's bootstrap room.
Handover = Literal["none", "answer", "transfer-id", "bootstrap-room"]

# More than one KV block of every backend (128 tokens on Ascend): a shorter prompt transfers nothing.
LONG_PROMPT = "The quick brown fox jumps over the lazy dog. " * 40

PREFILL_PARAMS: Mapping[str, object] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}

# Keys of a choice, its message or a stream's delta under which a model's words stand.
_SPOKEN = ("text", "content", "reasoning", "reasoning_content")

_COUNTERS: Mapping[EngineName, str] = {
    "vllm": "vllm:generation_tokens_total",
    "vllm-ascend": "vllm:generation_tokens_total",
    "sglang": "sglang:generation_tokens_total",
}

# What grows while requests make progress: a prefill rank counts prompt tokens.
_GROWING = ("generation_tokens_total", "prompt_tokens_total")


def open_requests(engine: EngineName, metrics: str) -> float:
    """How many requests run or wait, by the text of `/metrics`; 0 where it does not say."""
    names = _open_names(engine)
    rows = [line.rpartition(" ") for line in metrics.splitlines()]
    return sum(float(value) for text, _, value in rows if text.partition("{")[0] in names)


def open_pattern(engine: EngineName) -> str:
    """A regular expression for the lines of `/metrics` that count such requests."""
    return "^(" + "|".join(_open_names(engine)) + r")[{ ]"


def _open_names(engine: EngineName) -> tuple[str, str]:
    if engine == "sglang":
        return "sglang:num_running_reqs", "sglang:num_queue_reqs"
    return "vllm:num_requests_running", "vllm:num_requests_waiting"


def progress_metrics(engine: EngineName) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The metrics of requests that run or wait, and those that grow while they make progress.

    One that waits is work, too: of a scheduler that takes none up nothing runs (vllm#39863).
    """
    prefix = "sglang" if engine == "sglang" else "vllm"
    return _open_names(engine), tuple(f"{prefix}:{name}" for name in _GROWING)


def idle_questions(engine: EngineName, role: str, num_ranks: int) -> list[dict[str, object]]:
    """What asks each rank behind an endpoint for one token, by itself: path, headers and body, None to get it.

    SGLang's own `/health_generate` asks its scheduler, in a disaggregated server without a partner (http_server.py
    0.5.9). A decode rank of vllm-ascend dies of a prompt that no prefill rank has computed: it is asked nothing.

    Args:
        engine: whose endpoint it is.
        role: of its process.
        num_ranks: that answer behind it.
    """
    if engine == "sglang":
        return [{"path": HEALTH_GENERATE, "headers": {}, "body": None}]
    if engine == "vllm-ascend" and role == "decode":
        return []
    body = {"prompt": "1", "max_tokens": 1, "temperature": 0}
    indexes = [None] if num_ranks == 1 else range(num_ranks)
    return [{"path": COMPLETIONS, "headers": rank_headers(i), "body": body} for i in indexes]


def handover_of(engine: EngineName, flags: Mapping[str, object]) -> Handover:
    """How a prefill rank hands its KV cache to a decode rank, from the flags of either."""
    if engine == "sglang":
        mode = flags.get("disaggregation-mode")
        return "bootstrap-room" if mode in {"prefill", "decode"} else "none"
    connector = as_map(flags.get("kv-transfer-config")).get("kv_connector")
    if connector is None:
        return "none"
    return "transfer-id" if connector == "MooncakeConnector" else "answer"


def served_model_name(flags: Mapping[str, object]) -> str | None:
    """The name that clients ask for: the first served one, else the model as the engine was told it."""
    name = flags.get("served-model-name") or flags.get("model") or flags.get("model-path")
    first = name[0] if isinstance(name, tuple | list) else name
    return None if first is None else str(first)


def has_counters(engine: EngineName, flags: Mapping[str, object]) -> bool:
    """Whether `/metrics` counts tokens."""
    if engine == "sglang":
        return flags.get("enable-metrics") is True
    return flags.get("disable-log-stats") is not True


def counter_pattern(engine: EngineName) -> str:
    """A regular expression for the lines of `/metrics` that count generated tokens."""
    return "^" + re.escape(_COUNTERS[engine])


def generated_tokens(engine: EngineName, metrics: str, rank: int) -> float | None:
    """Tokens that a rank has generated, None when the text does not say.

    Args:
        engine: whose counter it is.
        metrics: lines of `/metrics`.
        rank: global data-parallel rank; SGLang counts a whole server.
    """
    total: float | None = None
    for line in metrics.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.rpartition("}")
        is_other_rank = re.search(r'(?:engine|dp_rank)="(\d+)"', labels)
        if name != _COUNTERS[engine] or (is_other_rank and int(is_other_rank[1]) != rank):
            continue
        try:
            total = (total or 0.0) + float(value)
        except ValueError:
            continue
    return total


def rank_headers(index: int | None) -> dict[str, str]:
    """The header that chooses a rank among those of one server; nothing for a server of one."""
    return {} if index is None else {RANK_HEADER: str(index)}


def rank_fields(engine: EngineName, index: int | None) -> dict[str, object]:
    """The body's field that chooses a rank, where the engine reads one."""
    return {"data_parallel_rank": index} if engine == "sglang" and index is not None else {}


def completion(model: str, *, max_tokens: int, prompt: str = LONG_PROMPT) -> dict[str, object]:
    """A request for a few tokens, the same ones every time."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": False,
        "ignore_eos": True,
    }


def prefill_part(body: Mapping[str, object], transfer_id: str | None) -> dict[str, object]:
    """What the router sends to the prefill rank: one token, and the order to keep the KV cache.

    Args:
        body: the client's request.
        transfer_id: for engines that are told of the transfer beforehand, else None.
    """
    params = dict(PREFILL_PARAMS)
    if transfer_id is not None:
        params = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id}
    # vLLM refuses options of a stream where there is none (real vllm 0.22.1); the router leaves them out, too
    asked = {key: value for key, value in body.items() if key != "stream_options"}
    return {**asked, "stream": False, "max_tokens": 1, "min_tokens": 1, KV_PARAMS: params}


def events_of(body: object) -> list[Mapping[str, object]]:
    """The documents of an answer: itself, or those of its stream."""
    if not isinstance(body, str):
        return [as_map(body)]
    found: list[Mapping[str, object]] = []
    for line in body.splitlines():
        if line.startswith("data: {"):
            try:
                found.append(as_map(json.loads(line.removeprefix("data: "))))
            except ValueError:
                continue
    return found


def answer_text(body: object) -> str:
    """What the model says in an answer, reasoning before content; a stream's events joined."""
    return "".join(_spoken(event) for event in events_of(body))


def answer_tokens(body: object) -> int:
    """Tokens of an answer by its own count; without one, 1 where the model says anything at all."""
    for event in reversed(events_of(body)):
        counted = as_map(event.get("usage")).get("completion_tokens")
        if isinstance(counted, int):
            return counted
    return 1 if answer_text(body) else 0


def advertised_address(body: object) -> str | None:
    """Where a prefill rank's answer tells decode ranks to fetch its KV cache, None when it does not say."""
    host = as_map(as_map(body).get(KV_PARAMS)).get("remote_host")
    return str(host) if host is not None else None


def decode_params(bootstrap: str, engine_id: str, transfer_id: str) -> dict[str, object]:
    """What the router sends to a decode rank that finds its prefill rank by a bootstrap server."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_bootstrap_addr": bootstrap,
        "remote_engine_id": engine_id,
        "transfer_id": transfer_id,
    }


def room_fields(host: str, port: int, room: int) -> dict[str, object]:
    """What SGLang's router adds to the request for both sides."""
    return {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room}


def engine_ids(answer: object) -> dict[int, str]:
    """Engine id by data-parallel rank, from a bootstrap server's answer to `/query`."""
    rows = answer.items() if isinstance(answer, Mapping) else ()
    return {
        int(str(rank)): str(row["engine_id"])
        for rank, row in rows
        if is_whole_number(str(rank)) and isinstance(row, Mapping) and "engine_id" in row
    }


def _spoken(event: Mapping[str, object]) -> str:
    """The words of the first choice of one document."""
    choices = event.get("choices")
    choice = as_map(choices[0]) if isinstance(choices, list) and choices else {}
    parts = (choice, as_map(choice.get("message")), as_map(choice.get("delta")))
    words = (part.get(key) for part in parts for key in reversed(_SPOKEN))
    return "".join(word for word in words if isinstance(word, str))
