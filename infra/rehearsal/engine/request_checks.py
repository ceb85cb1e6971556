"""What vLLM refuses of a request before a rank sees it, in its own words (recorded from vllm 0.22.1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .http_server import Request
from .openai_api import Rejected
from .request_fields import field_problems, problem

# Where the released image has the code that its messages name, and the line of each route.
SOURCE = "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/utils.py"
ROUTES = {
    "/v1/completions": ("create_completion", 34),
    "/v1/chat/completions": ("create_chat_completion", 40),
    "/tokenize": ("tokenize", 38),
    "/detokenize": ("detokenize", 64),
}
STREAM_OPTIONS = "Stream options can only be defined when `stream=True`."
NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."
MEDIA_TYPE = "Unsupported Media Type: Only 'application/json' is allowed"


class Said(NamedTuple):
    """What a validator says of a body."""

    text: str
    param: str | None = None
    value: Any = None

    @property
    def shown(self) -> str:
        """The text with the parameter, as vLLM appends it."""
        if self.param is None:
            return self.text
        value = "" if self.value is None else f", value={self.value}"
        return f"{self.text} (parameter={self.param}{value})"


Check = Callable[[dict[str, Any], bool], "Said | None"]


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
    _check_together(request.path, body)
    problems = field_problems(request.path, body)
    if problems:
        raise _invalid(request.path, problems)
    return body


def _parsed(request: Request) -> Any:
    if not request.body:
        raise _invalid(request.path, [problem("missing", ("body",), "Field required", None)])
    try:
        return json.loads(request.body)
    except json.JSONDecodeError as error:
        row = problem(
            "json_invalid", ("body", error.pos), "JSON decode error", {}, {"error": error.msg}
        )
        raise _invalid(request.path, [row]) from error


def checked_text(request: Request) -> dict[str, Any]:
    """Return the body of a request to turn text into tokens, or back.

    Raises:
        Rejected: it lacks what is to be turned.
    """
    body = _parsed(request)
    if not isinstance(body, dict):
        raise Rejected(500, "InternalServerError", f"{type(body).__name__!r} object")
    problems = []
    if request.path == "/detokenize":
        if not isinstance(body.get("tokens"), list):
            text = "Input should be a valid list"
            problems = [problem("list_type", ("body", "tokens"), text, body.get("tokens"))]
    elif "prompt" not in body and "messages" not in body:
        where = ("body", "function-wrap[__log_extra_fields__()]")
        names = ("prompt", "messages")
        problems = [problem("missing", (*where, name), "Field required", body) for name in names]
    if problems:
        raise _invalid(request.path, problems)
    return body


def _check_together(path: str, body: dict[str, Any]) -> None:
    """The validators that see a whole body before its fields are, the last one of the class first."""
    is_chat = path.endswith("/chat/completions")
    checks: tuple[Check, ...] = (_salt, _generation, _tools, _logprobs, _stream, _format)
    if not is_chat:
        checks = (_salt, _prompt, _stream, _logprobs, _format)
    for check in checks:
        said = check(body, is_chat)
        if said is not None:
            raise _invalid(path, [_value_error(said, body)], said.param)


def _salt(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - a shape that checks share
    salt = body.get("cache_salt")
    if salt is None or (isinstance(salt, str) and salt):
        return None
    return Said("Parameter 'cache_salt' must be a non-empty string if provided.")


def _prompt(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - likewise
    return Said(NO_PROMPT) if body.get("prompt") in (None, "") else None


def _generation(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - likewise
    if not (body.get("continue_final_message") and body.get("add_generation_prompt")):
        return None
    return Said("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")


def _tools(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - likewise
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools and "tool_choice" not in body:
        body["tool_choice"] = "auto"
        return None
    said = None
    if tools == []:
        said = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
    elif choice not in (None, "none"):
        said = _choice_of_tools(choice, tools)
    return None if said is None else Said(said)


def _choice_of_tools(choice: Any, tools: Any) -> str | None:
    if tools is None:
        return "When using `tool_choice`, `tools` must be set."
    if isinstance(choice, dict):
        wanted = (choice.get("function") or {}).get("name")
        is_there = any(tool.get("function", {}).get("name") == wanted for tool in tools)
        reason = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        return None if is_there else reason
    known = 'Only named tools, "none", "auto" or "required" are supported.'
    return (
        None
        if choice in ("auto", "required")
        else f"Invalid value for `tool_choice`: {choice}! {known}"
    )


def _logprobs(body: dict[str, Any], is_chat: bool) -> Said | None:  # noqa: FBT001 - likewise
    prompt = _number(body, "prompt_logprobs")
    if (prompt > 0 or prompt == -1) and body.get("stream"):
        return Said("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    if prompt < -1:
        return Said("`prompt_logprobs` must be a positive value or -1.", "prompt_logprobs", prompt)
    return _top_logprobs(body) if is_chat else _count_of_logprobs(body)


def _count_of_logprobs(body: dict[str, Any]) -> Said | None:
    count = _number(body, "logprobs")
    return Said("`logprobs` must be a positive value.", "logprobs", count) if count < 0 else None


def _top_logprobs(body: dict[str, Any]) -> Said | None:
    top = _number(body, "top_logprobs")
    if top < -1:
        return Said("`top_logprobs` must be a positive value or -1.", "top_logprobs", top)
    if top and not body.get("logprobs"):
        return Said("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    return None


def _stream(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - likewise
    has_options = body.get("stream_options") and not body.get("stream")
    return Said(STREAM_OPTIONS, "stream_options") if has_options else None


def _format(body: dict[str, Any], _: bool) -> Said | None:  # noqa: FBT001 - likewise
    wanted = body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    if wanted.get("json_schema") is not None:
        return None
    reason = "When response_format type is 'json_schema', the 'json_schema' field must be provided."
    return Said(reason, "response_format")


def _number(body: dict[str, Any], name: str) -> int | float:
    """Return a field that is a number; 0 for what is none, of which another check speaks."""
    value = body.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _value_error(said: Said, body: dict[str, Any]) -> str:
    kind = "ValueError" if said.param is None else "VLLMValidationError"
    known = problem("value_error", ("body",), f"Value error, {said.shown}", body)
    return f"{known[:-1]}, 'ctx': {{'error': {kind}({said.text!r})}}}}"


def _invalid(path: str, problems: list[str], param: str | None = None) -> Rejected:
    noun = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
    lines = "".join(f"  {problem}\n" for problem in problems)
    function, line = ROUTES[path]
    where = (
        f'  File "{SOURCE}", line {line}, in {function}\n    POST {path} [{", ".join(problems)}]'
    )
    return Rejected(400, "Bad Request", f"{noun}:\n{lines}\n{where}", param)
