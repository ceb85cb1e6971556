"""The fields of a request for a completion or a chat, and how pydantic refuses their values (vllm 0.22.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# vllm entrypoints/openai/completion/protocol.py and chat_completion/protocol.py: errors come in this order.
# A question mark: null is taken, too.
COMPLETION = {
    "model": "str?", "prompt": "prompt", "echo": "bool?", "frequency_penalty": "float?", "logit_bias": "bias",
    "logprobs": "int?", "max_tokens": "int?", "n": "int", "presence_penalty": "float?", "seed": "int?",
    "stop": "texts", "stream": "bool?", "stream_options": "options", "suffix": "str?", "temperature": "float?",
    "top_p": "float?", "user": "str?", "use_beam_search": "bool", "top_k": "int?", "min_p": "float?",
    "repetition_penalty": "float?", "length_penalty": "float", "stop_token_ids": "ints",
    "include_stop_str_in_output": "bool", "ignore_eos": "bool", "min_tokens": "int", "skip_special_tokens": "bool",
    "allowed_token_ids": "ints", "prompt_logprobs": "int?", "response_format": "format", "priority": "int",
    "request_id": "str", "kv_transfer_params": "dict?",
}  # fmt: skip
CHAT = {
    "messages": "messages", "model": "str?", "frequency_penalty": "float?", "logit_bias": "bias", "logprobs": "bool?",
    "top_logprobs": "int?", "max_tokens": "int?", "max_completion_tokens": "int?", "n": "int?",
    "presence_penalty": "float?", "response_format": "format", "seed": "int?", "stop": "texts", "stream": "bool?",
    "stream_options": "options", "temperature": "float?", "top_p": "float?", "tools": "tools",
    "include_reasoning": "bool", "user": "str?", "use_beam_search": "bool", "top_k": "int?", "min_p": "float?",
    "repetition_penalty": "float?", "length_penalty": "float", "stop_token_ids": "ints",
    "include_stop_str_in_output": "bool", "ignore_eos": "bool", "min_tokens": "int", "skip_special_tokens": "bool",
    "prompt_logprobs": "int?", "allowed_token_ids": "ints", "echo": "bool", "add_generation_prompt": "bool",
    "continue_final_message": "bool", "chat_template": "str?", "chat_template_kwargs": "dict?", "priority": "int",
    "request_id": "str", "kv_transfer_params": "dict?",
}  # fmt: skip
FIELDS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}
# What each kind of message lacks without a role, or says of one that is no text; None stands for any.
ROLES = (
    ("ChatCompletionDeveloperMessageParam", "developer", ()),
    ("ChatCompletionSystemMessageParam", "system", ()),
    ("ChatCompletionUserMessageParam", "user", ()),
    ("ChatCompletionAssistantMessageParam", "assistant", ()),
    ("ChatCompletionToolMessageParam", "tool", ("tool_call_id",)),
    ("ChatCompletionFunctionMessageParam", "function", ("name",)),
    ("CustomChatCompletionMessageParam", None, ()),
)
WORDS = ("true", "false", "0", "1", "on", "off", "yes", "no", "t", "f", "y", "n")
NOUNS = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "str": "string",
    "dict": "dictionary",
    "list": "list",
}
KINDS = {"str": "string_type", "dict": "dict_type", "list": "list_type"}

ATTRIBUTES = "Input should be a valid dictionary or object to extract fields from"

Place = tuple[Any, ...]


def problem(
    kind: str, place: Place, text: str, value: Any, context: dict[str, Any] | None = None
) -> str:
    """Return one error as FastAPI prints it."""
    more = {"ctx": context} if context is not None else {}
    return str({"type": kind, "loc": place, "msg": text, "input": value, **more})


def field_problems(path: str, body: dict[str, Any]) -> list[str]:
    """Return pydantic's errors about the fields of a body."""
    found = []
    for name, kind in FIELDS[path].items():
        if name in body:
            found += _problems(kind, ("body", name), body[name])
        elif name == "messages":
            found.append(problem("missing", ("body", name), "Field required", body))
    return found


def _problems(kind: str, place: Place, value: Any) -> list[str]:
    by_kind: dict[str, Callable[[Place, Any], list[str]]] = {
        "prompt": _prompt,
        "texts": _texts,
        "ints": _numbers,
        "bias": _bias,
        "options": _options,
        "format": _format,
        "tools": _tools,
        "messages": _messages,
    }
    if kind in by_kind:
        is_required = kind == "messages"
        return [] if value is None and not is_required else by_kind[kind](place, value)
    if kind.endswith("?") and value is None:
        return []
    return _scalar(kind.rstrip("?"), place, value)


def _scalar(kind: str, place: Place, value: Any) -> list[str]:
    """One value of a plain type."""
    if kind in KINDS:
        fits = isinstance(value, {"str": str, "dict": dict, "list": list}[kind])
        wrong = None if fits else (KINDS[kind], "")
    else:
        wrong = (_switch if kind == "bool" else _number)(kind, value)
    if wrong is None:
        return []
    name, more = wrong
    return [problem(name, place, f"Input should be a valid {NOUNS[kind]}{more}", value)]


def _switch(_: str, value: Any) -> tuple[str, str] | None:
    """Return the error's name and the end of its text for what is no boolean."""
    if isinstance(value, bool) or str(value).lower() in WORDS:
        return None
    is_read = isinstance(value, (str, int, float))
    return ("bool_parsing", ", unable to interpret input") if is_read else ("bool_type", "")


def _number(kind: str, value: Any) -> tuple[str, str] | None:
    """Return the same for what is no number."""
    if isinstance(value, str):
        article = "an" if kind == "int" else "a"
        said = f", unable to parse string as {article} {NOUNS[kind]}"
        return None if _parses(kind, value) else (f"{kind}_parsing", said)
    if not isinstance(value, (int, float)):
        return f"{kind}_type", ""
    if kind == "int" and isinstance(value, float) and not value.is_integer():
        return "int_from_float", ", got a number with a fractional part"
    return None


def _parses(kind: str, text: str) -> bool:
    if kind == "int":
        return text.strip().lstrip("+-").isdigit()
    try:
        float(text)
    except ValueError:
        return False
    return True


def _each(kind: str, place: Place, value: Any) -> list[str]:
    """A list of values of one type."""
    if not isinstance(value, list):
        return _scalar("list", place, value)
    return [
        line for number, item in enumerate(value) for line in _scalar(kind, (*place, number), item)
    ]


def _either(*ways: list[str]) -> list[str]:
    """Nothing when one way fits, else what each of them says."""
    return [] if not all(ways) else [line for way in ways for line in way]


def _numbers(place: Place, value: Any) -> list[str]:
    return _each("int", place, value)


def _texts(place: Place, value: Any) -> list[str]:
    return _either(
        _scalar("str", (*place, "str"), value), _each("str", (*place, "list[str]"), value)
    )


def _prompt(place: Place, value: Any) -> list[str]:
    inner, outer = (*place, "list[constrained-int]"), (*place, "list[list[constrained-int]]")
    if isinstance(value, list):
        nested = [
            line for number, item in enumerate(value) for line in _token_ids((*outer, number), item)
        ]
    else:
        nested = _scalar("list", outer, value)
    return _either(_token_ids(inner, value), nested, *_prompt_texts(place, value))


def _prompt_texts(place: Place, value: Any) -> tuple[list[str], list[str]]:
    return (
        _scalar("str", (*place, "str"), value),
        _each("str", (*place, "list[str]"), value),
    )


def _token_ids(place: Place, value: Any) -> list[str]:
    found = _each("int", place, value)
    if found or not isinstance(value, list):
        return found
    said = "Input should be greater than or equal to 0"
    return [
        problem("greater_than_equal", (*place, number), said, item, {"ge": 0})
        for number, item in enumerate(value)
        if int(item) < 0
    ]


def _bias(place: Place, value: Any) -> list[str]:
    if not isinstance(value, dict):
        return _scalar("dict", place, value)
    return [line for key, item in value.items() for line in _scalar("float", (*place, key), item)]


def _options(place: Place, value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [problem("model_attributes_type", place, ATTRIBUTES, value)]
    names = ("include_usage", "continuous_usage_stats")
    return [
        line
        for name in names
        if value.get(name) is not None
        for line in _scalar("bool", (*place, name), value[name])
    ]


def _format(place: Place, value: Any) -> list[str]:
    """AnyResponseFormat: three classes, one of which the first two kinds and json_schema share."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or kind in (
        "text",
        "json_object",
        "json_schema",
        "structural_tag",
    ):
        return []
    where = (*place, "function-wrap[__log_extra_fields__()]")
    plain, tag = "'text', 'json_object' or 'json_schema'", "'structural_tag'"
    found = []
    for expected, lacking in ((plain, ()), (tag, ("format",)), (tag, ("structures", "triggers"))):
        said = f"Input should be {expected}"
        context = {"expected": expected}
        found.append(problem("literal_error", (*where, "type"), said, kind, context))
        found += [problem("missing", (*where, name), "Field required", value) for name in lacking]
    return found


def _tools(place: Place, value: Any) -> list[str]:
    if not isinstance(value, list):
        return _scalar("list", place, value)
    return [
        problem("missing", (*place, number, "function", "name"), "Field required", tool["function"])
        for number, tool in enumerate(value)
        if isinstance(tool, dict)
        and isinstance(tool.get("function"), dict)
        and "name" not in tool["function"]
    ]


def _messages(place: Place, value: Any) -> list[str]:
    if not isinstance(value, list):
        return _scalar("list", place, value)
    found = []
    for number, message in enumerate(value):
        where = (*place, number)
        if not isinstance(message, dict):
            found += _no_message(where, message)
        elif not isinstance(message.get("role"), str):
            found += _no_role(where, message)
        elif not isinstance(message.get("content"), (str, list, type(None))):
            # the first of the lines in which pydantic says so of every kind of message
            said, kind = "Input should be a valid string", (*where, ROLES[0][0], "content", "str")
            found.append(problem("string_type", kind, said, message["content"]))
    return found


def _no_message(place: Place, value: Any) -> list[str]:
    said = "Input should be a valid dictionary"
    found = [problem("dict_type", (*place, name), said, value) for name, _, _ in ROLES]
    return [*found, problem("model_attributes_type", (*place, "Message"), ATTRIBUTES, value)]


def _no_role(place: Place, message: dict[str, Any]) -> list[str]:
    found = []
    for name, role, lacking in ROLES:
        where, rows = (*place, name), []
        if "role" not in message:
            rows = [problem("missing", (*where, "role"), "Field required", message)]
        elif role is None:
            rows = _scalar("str", (*where, "role"), message["role"])
        else:
            said, context = f"Input should be {role!r}", {"expected": repr(role)}
            rows = [problem("literal_error", (*where, "role"), said, message["role"], context)]
        more = [
            problem("missing", (*where, key), "Field required", message)
            for key in lacking
            if key not in message
        ]
        found += [*more, *rows] if role == "function" else [*rows, *more]
    found.append(problem("missing", (*place, "Message", "author"), "Field required", message))
    content = message.get("content")
    if not isinstance(content, list):
        found += _scalar("list", (*place, "Message", "content"), content)
    return found
