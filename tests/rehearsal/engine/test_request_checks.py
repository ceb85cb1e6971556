"""What the simulated vLLM refuses of a request's fields; the words are pydantic's, of vllm 0.22.1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.rehearsal.engine.http_server import Request
from infra.rehearsal.engine.openai_api import Rejected
from infra.rehearsal.engine.request_checks import checked_body
from infra.rehearsal.engine.sampling_checks import check_sampling

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def refusal(path: str, **fields: Any) -> str:
    body: dict[str, Any] = (
        {"prompt": "x"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "x"}]}
    )
    content = json.dumps({**body, **fields}).encode()
    request = Request("POST", path, {}, {"content-type": "application/json"}, content)
    try:
        check_sampling(checked_body(request), 0)
    except Rejected as rejected:
        return f"{rejected.status} {rejected.message}"
    return ""


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        (
            COMPLETIONS,
            {"max_tokens": 1.5},
            "'type': 'int_from_float', 'loc': ('body', 'max_tokens')",
        ),
        (COMPLETIONS, {"n": None}, "'type': 'int_type', 'loc': ('body', 'n')"),
        (COMPLETIONS, {"echo": []}, "'type': 'bool_type', 'loc': ('body', 'echo')"),
        (COMPLETIONS, {"prompt": [1, "a"]}, "5 validation errors"),
        (COMPLETIONS, {"prompt": [-1]}, "'msg': 'Input should be greater than or equal to 0'"),
        (COMPLETIONS, {"stop": [7]}, "('body', 'stop', 'list[str]', 0)"),
        (COMPLETIONS, {"logit_bias": {"1": "a"}}, "('body', 'logit_bias', '1')"),
        (
            COMPLETIONS,
            {"stream": True, "stream_options": []},
            "dictionary or object to extract fields from",
        ),
        (COMPLETIONS, {"logprobs": -2}, "`logprobs` must be a positive value."),
        (COMPLETIONS, {"cache_salt": ""}, "'cache_salt' must be a non-empty string"),
        (COMPLETIONS, {"response_format": {"type": "json_schema"}}, "field must be provided"),
        (COMPLETIONS, {"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2."),
        (COMPLETIONS, {"presence_penalty": 3}, "presence_penalty must be in [-2, 2], got 3.0."),
        (COMPLETIONS, {"stop": ""}, "stop cannot contain an empty string."),
        (CHAT, {"tools": []}, "`tools` must not be an empty array."),
        (CHAT, {"tool_choice": "required"}, "`tools` must be set."),
        (CHAT, {"top_logprobs": 1}, "`logprobs` must be set to true."),
        (CHAT, {"messages": [7]}, "8 validation errors"),
        (CHAT, {"messages": [{"role": 7, "content": "x"}]}, "11 validation errors"),
        (CHAT, {"max_completion_tokens": 0}, "max_tokens must be at least 1, got 0."),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(
    path: str, fields: dict[str, Any], said: str
) -> None:
    refused = refusal(path, **fields)
    assert refused.startswith("400 ")
    assert said in refused


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (COMPLETIONS, {"max_tokens": "4", "n": True, "stream": "no", "temperature": "0.5"}),
        (COMPLETIONS, {"prompt": [[1, 2], [3]], "stop": ["a", "b"], "logit_bias": {"1": "2"}}),
        (COMPLETIONS, {"prompt": ["a", "b"], "seed": None, "no_such_field": []}),
        (CHAT, {"messages": [{"role": "anybody", "content": None}], "tools": None}),
        (CHAT, {"logprobs": True, "top_logprobs": 2, "response_format": {"type": "text"}}),
    ],
)
def test_what_pydantic_reads_is_taken(path: str, fields: dict[str, Any]) -> None:
    assert refusal(path, **fields) == ""
