"""The HTTP interface of one engine, asked over a socket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.engines.capabilities import CAPABILITIES
from infra.launch.proof.known_answer import ANSWER, LEAST_WORDS
from infra.launch.proof.known_answer import question as known
from infra.launch.proof.questions import FORMS, missing_from, question_for
from tests.ports import free_ports
from tests.rehearsal.engine.simulated_host import (
    Engine,
    Lab,
    call,
    chat,
    journal,
    make_state,
    wait_healthy,
)

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
IMAGE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
]


@pytest.fixture(scope="module")
def full(kimi: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Path]]:
    """An engine with everything switched on."""
    folder = tmp_path_factory.mktemp("full")
    lab, state, port = Lab(folder), make_state(folder / "host-0"), free_ports()[0]
    argv = [
        "vllm", "serve", str(kimi), "-tp", "8", "--port", str(port), "--served-model-name", "kimi", "k2.5",
        "--tool-call-parser", "kimi_k2", "--reasoning-parser", "kimi_k2", "--enable-auto-tool-choice",
        "--max-model-len", "4096",
    ]  # fmt: skip
    engine = lab.start(state, argv, port=port)
    wait_healthy(engine, port)
    yield engine, state
    lab.stop()


@pytest.fixture(scope="module")
def bare(kimi_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A text-only engine without parsers, behind a key."""
    folder = tmp_path_factory.mktemp("bare")
    lab, state, port = Lab(folder), make_state(folder / "host-0"), free_ports()[0]
    argv = ["vllm", "serve", str(kimi_text), "-tp", "8", "--port", str(port), "--api-key", "secret"]
    engine = lab.start(state, argv, port=port)
    wait_healthy(engine, port)
    yield engine
    lab.stop()


KEY = {"Authorization": "Bearer secret"}


def test_the_first_line_says_that_this_is_a_simulation(full: tuple[Engine, Path]) -> None:
    assert full[0].output().startswith("moe-infra rehearsal: SIMULATED vllm 0.22.1\n")
    assert "Loading safetensors checkpoint shards: 100% Completed | 4/4" in full[0].output()


def test_arithmetic_is_right_and_the_thought_stands_apart(full: tuple[Engine, Path]) -> None:
    status, answer = chat(full[0].port or 0, "What is 17 + 25?", max_tokens=100)
    message = answer["choices"][0]["message"]
    assert (status, message["content"]) == (200, "The answer is 42.")
    assert message["reasoning"]
    assert "reasoning_content" not in message
    status, text = call(
        full[0].port or 0, "/v1/completions", {"model": "k2.5", "prompt": "6*7=", "max_tokens": 4}
    )
    assert json.loads(text)["choices"][0]["text"] == " 42"


def test_max_tokens_cuts_the_answer(full: tuple[Engine, Path]) -> None:
    _, answer = chat(full[0].port or 0, "Hello", max_tokens=3)
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"
    _, answer = chat(full[0].port or 0, "Hello", max_tokens=64, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 64


def test_a_stream_ends_with_usage_and_done(full: tuple[Engine, Path]) -> None:
    body = {
        "messages": [{"role": "user", "content": "2+2?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    _, text = call(full[0].port or 0, "/v1/chat/completions", body)
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks: list[dict[str, Any]] = [json.loads(x) for x in events[:-1]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
    assert said == "The answer is 4."
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_tools_and_images_work_where_the_flags_enable_them(full: tuple[Engine, Path]) -> None:
    _, answer = chat(full[0].port or 0, "Weather in Paris?", tools=[TOOL])
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "city": "Paris"
    }
    status, answer = chat(full[0].port or 0, IMAGE)
    assert (status, answer["choices"][0]["message"]["content"]) == (
        200,
        "The image shows a simulated picture.",
    )


@pytest.mark.parametrize("name", [*CAPABILITIES, *FORMS])
def test_everything_that_verify_asks_is_shown(name: str, full: tuple[Engine, Path]) -> None:
    for nonce in "abc":
        question = question_for(name, "k2.5", nonce, {"thinking": False})
        status, text = call(full[0].port or 0, question.path, question.body)
        assert status == 200
        answer = text if question.body.get("stream") else json.loads(text)
        assert missing_from(question, answer) is None


def test_a_list_that_was_there_before_goes_on(full: tuple[Engine, Path]) -> None:
    _, text = call(full[0].port or 0, "/v1/completions", dict(known("k2.5").body))
    said = " ".join(json.loads(text)["choices"][0]["text"].split())
    assert ANSWER.startswith(said)
    assert len(said.split()) >= LEAST_WORDS


def test_tools_and_images_are_refused_where_they_do_not(bare: Engine) -> None:
    status, answer = chat(bare.port or 0, "Weather?", tools=[TOOL], headers=KEY)
    assert status == 400
    assert answer["error"]["message"] == (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    )
    status, answer = chat(bare.port or 0, IMAGE, headers=KEY)
    assert status == 400
    assert answer["error"]["message"].endswith(" is not a multimodal model")
    _, answer = chat(bare.port or 0, "2+2?", headers=KEY)
    message = answer["choices"][0]["message"]
    assert message["reasoning"] is None
    assert message["content"].endswith("</think>The answer is 4.")


def test_bad_requests_get_vllms_errors(full: tuple[Engine, Path]) -> None:
    port = full[0].port or 0
    status, answer = chat(port, "Hello", model="gpt-5")
    assert (status, answer["error"]["type"]) == (404, "NotFoundError")
    assert answer["error"]["message"] == "The model `gpt-5` does not exist."
    status, answer = chat(port, "Hello", max_tokens=4096)
    assert status == 400
    assert "This model's maximum context length is 4096 tokens." in answer["error"]["message"]
    status, text = call(port, "/v1/chat/completions", {"messages": []})
    assert (status, "empty conversation" in text) == (400, True)
    status, text = call(port, "/v1/chat/completions", {"model": "kimi"})
    assert (status, "Field required" in text) == (400, True)
    assert call(port, "/nowhere")[0] == 404
    assert chat(port, "Hello", headers={"X-data-parallel-rank": "1"})[0] == 400


def test_a_key_guards_v1_alone(bare: Engine) -> None:
    port = bare.port or 0
    assert call(port, "/v1/models") == (401, '{"error": "Unauthorized"}')
    assert call(port, "/v1/models", headers=KEY)[0] == 200
    assert call(port, "/health")[0] == call(port, "/metrics")[0] == call(port, "/ping")[0] == 200


def test_metrics_count_generated_tokens_by_rank(full: tuple[Engine, Path]) -> None:
    port = full[0].port or 0

    def generated() -> float:
        _, text = call(port, "/metrics")
        line = next(x for x in text.splitlines() if x.startswith("vllm:generation_tokens_total{"))
        assert line.startswith('vllm:generation_tokens_total{engine="0",model_name="kimi"} ')
        return float(line.rsplit(" ", 1)[1])

    before = generated()
    chat(port, "Hello", max_tokens=5)
    assert generated() == before + 5


def test_models_version_and_tokenize(full: tuple[Engine, Path]) -> None:
    port = full[0].port or 0
    models = json.loads(call(port, "/v1/models")[1])["data"]
    assert [x["id"] for x in models] == ["kimi", "k2.5"]
    assert models[0]["max_model_len"] == 4096
    assert json.loads(call(port, "/version")[1]) == {"version": "0.22.1"}
    assert json.loads(call(port, "/tokenize", {"prompt": "one two three"})[1])["count"] == 3


def test_every_request_is_in_the_hosts_journal(full: tuple[Engine, Path]) -> None:
    engine, state = full
    status, answer = chat(engine.port or 0, "Hello", headers={"X-Request-Id": "abc"}, max_tokens=2)
    record = journal(state)[-1]
    assert status == 200
    assert answer["id"] == record["request_id"] == "chatcmpl-abc"
    assert record["pid"] == engine.process.pid
    assert (record["host"], record["port"], record["dp_rank"]) == ("host-0", engine.port, 0)
    assert (record["completion_tokens"], record["kv_from"], record["role"]) == (2, None, None)


def test_it_stops_at_once_and_with_0(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    port = free_ports()[0]
    argv = ["vllm", "serve", str(kimi), "-tp", "8", "--port", str(port)]
    engine = lab.start(make_state(tmp_path / "h"), argv)
    wait_healthy(engine, port)
    before = time.monotonic()
    engine.process.terminate()
    assert engine.wait() == 0
    assert time.monotonic() - before < 0.5
