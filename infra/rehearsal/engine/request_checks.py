"""What vLLM refuses of a request before a rank sees it, in its own words (recorded from vllm 0.22.1)."""

from __future__ import annotations

import json
from typing import Any

from .http_server import Request
from .openai_api import Rejected

# Where the released image has the code that its messages name, and the line of each route.
SOURCE = "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/utils.py"
ROUTES = {
    "/v1/completions": ("create_completion", 34),
    "/v1/chat/completions": ("create_chat_completion", 40),
}
STREAM_OPTIONS = "Stream options can only be defined when `stream=True`."
NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."
MEDIA_TYPE = "Unsupported Media Type: Only 'application/json' is allowed"
INTEGERS = ("max_tokens", "max_completion_tokens", "min_tokens", "n", "seed", "top_k")
NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
SWITCHES = ("stream", "echo", "ignore_eos")
PARSING = {
    "int": "Input should be a valid integer, unable to parse string as an integer",
    "float": "Input should be a valid number, unable to parse string as a number",
    "bool": "Input should be a valid boolean, unable to interpret input",
}
# What each kind of message lacks, in the order in which pydantic tries them.
LACKING = (
    ("ChatCompletionDeveloperMessageParam", "role"),
    ("ChatCompletionSystemMessageParam", "role"),
    ("ChatCompletionUserMessageParam", "role"),
    ("ChatCompletionAssistantMessageParam", "role"),
    ("ChatCompletionToolMessageParam", "role"),
    ("ChatCompletionToolMessageParam", "tool_call_id"),
    ("ChatCompletionFunctionMessageParam", "name"),
    ("ChatCompletionFunctionMessageParam", "role"),
    ("CustomChatCompletionMessageParam", "role"),
    ("Message", "author"),
)


def checked_body(request: Request) -> dict[str, Any]:
    """Return the body of a request for a completion.

    Raises:
        Rejected: its content type, its JSON, or a field of it.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Rejected(400, "Bad Request", f'1 validation error:\n  {MEDIA_TYPE} ["{MEDIA_TYPE}"]')
    body = _parsed(request)
    if not isinstance(body, dict):
        noun = type(body).__name__
        message = f"'{noun}' object has no attribute 'get'"
        raise Rejected(500, "InternalServerError", message)
    if body.get("stream_options") and not body.get("stream"):
        text = f"Value error, {STREAM_OPTIONS} (parameter=stream_options)"
        problem = _value_error(text, body, f"VLLMValidationError({STREAM_OPTIONS!r})")
        raise _invalid(request.path, [problem], "stream_options")
    problems = _field_problems(request.path, body)
    if problems:
        raise _invalid(request.path, problems)
    return body


def check_sampling(body: dict[str, Any]) -> None:
    """Check the values of sampling parameters.

    Raises:
        Rejected: one is out of its range.
    """
    count = int(body.get("n") or 0) if "n" in body and body["n"] is not None else 1
    if count < 1:
        raise Rejected(400, "BadRequestError", f"n must be at least 1, got {count}.")
    heat = body.get("temperature")
    if heat is not None and float(heat) < 0:
        raise _named("temperature", f"temperature must be non-negative, got {float(heat)}.")
    top = body.get("top_p")
    if top is not None and not 0 < float(top) <= 1:
        raise _named("top_p", f"top_p must be in (0, 1], got {float(top)}.", float(top))
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if body.get("max_tokens") is not None and int(body["max_tokens"]) < 1:
        limit = int(body["max_tokens"])
        raise _named("max_tokens", f"max_tokens must be at least 1, got {limit}.", limit)
    least = int(body.get("min_tokens") or 0)
    if most is not None and least > int(most):
        message = f"min_tokens must be less than or equal to max_tokens={int(most)}, got {least}."
        raise Rejected(400, "BadRequestError", message)
    if heat is not None and float(heat) == 0 and count > 1:
        message = f"n must be 1 when using greedy sampling, got {count}."
        raise Rejected(400, "BadRequestError", message)


def _parsed(request: Request) -> Any:
    if not request.body:
        problem = "{'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}"
        raise _invalid(request.path, [problem])
    try:
        return json.loads(request.body)
    except json.JSONDecodeError as error:
        problem = (
            f"{{'type': 'json_invalid', 'loc': ('body', {error.pos}), 'msg': 'JSON decode error', "
            f"'input': {{}}, 'ctx': {{'error': {error.msg!r}}}}}"
        )
        raise _invalid(request.path, [problem]) from error


def _field_problems(path: str, body: dict[str, Any]) -> list[str]:
    if path == "/v1/completions":
        prompt = body.get("prompt")
        if prompt is None or prompt in ("", []):
            text = f"Value error, {NO_PROMPT}"
            return [_value_error(text, body, f"ValueError({NO_PROMPT!r})")]
        problems = [] if isinstance(prompt, (str, list)) else _prompt_problems(prompt)
    else:
        problems = _message_problems(body)
    params = body.get("kv_transfer_params")
    if params is not None and not isinstance(params, dict):
        text = "Input should be a valid dictionary"
        problems.append(_problem("dict_type", ("body", "kv_transfer_params"), text, params))
    for names, kind, test in (
        (INTEGERS, "int", _is_integer),
        (NUMBERS, "float", _is_number),
        (SWITCHES, "bool", _is_switch),
    ):
        problems += [
            _problem(f"{kind}_parsing", ("body", name), PARSING[kind], body[name])
            for name in names
            if body.get(name) is not None and not test(body[name])
        ]
    return problems


def _prompt_problems(prompt: Any) -> list[str]:
    wanted = ("list[constrained-int]", "list[list[constrained-int]]", "str", "list[str]")
    return [
        _problem(
            "string_type" if kind == "str" else "list_type",
            ("body", "prompt", kind),
            f"Input should be a valid {'string' if kind == 'str' else 'list'}",
            prompt,
        )
        for kind in wanted
    ]


def _message_problems(body: dict[str, Any]) -> list[str]:
    messages = body.get("messages")
    if messages is None:
        return [_problem("missing", ("body", "messages"), "Field required", body)]
    if not isinstance(messages, list):
        return [
            _problem("list_type", ("body", "messages"), "Input should be a valid list", messages)
        ]
    problems = []
    for place, message in enumerate(messages):
        if isinstance(message, dict) and not message.get("role"):
            problems += [
                _problem("missing", ("body", "messages", place, *lack), "Field required", message)
                for lack in LACKING
            ]
            said = message.get("content")
            if not isinstance(said, list):
                where = ("body", "messages", place, "Message", "content")
                problems.append(_problem("list_type", where, "Input should be a valid list", said))
    return problems


def _problem(kind: str, place: tuple[Any, ...], text: str, value: Any) -> str:
    return str({"type": kind, "loc": place, "msg": text, "input": value})


def _value_error(text: str, body: dict[str, Any], error: str) -> str:
    known = str({"type": "value_error", "loc": ("body",), "msg": text, "input": body})
    return f"{known[:-1]}, 'ctx': {{'error': {error}}}}}"


def _invalid(path: str, problems: list[str], param: str | None = None) -> Rejected:
    noun = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
    lines = "".join(f"  {problem}\n" for problem in problems)
    function, line = ROUTES[path]
    where = (
        f'  File "{SOURCE}", line {line}, in {function}\n    POST {path} [{", ".join(problems)}]'
    )
    return Rejected(400, "Bad Request", f"{noun}:\n{lines}\n{where}", param)


def _named(param: str, message: str, value: Any = None) -> Rejected:
    shown = message.rpartition(" ")[2].rstrip(".") if value is None else value
    text = f"{message} (parameter={param}, value={shown})"
    return Rejected(400, "BadRequestError", text, param)


def _is_integer(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lstrip("+-").isdigit()
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_switch(value: Any) -> bool:
    return str(value).lower() in (
        "true",
        "false",
        "0",
        "1",
        "on",
        "off",
        "yes",
        "no",
        "t",
        "f",
        "y",
        "n",
    )
