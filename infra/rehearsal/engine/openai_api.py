"""The OpenAI interface of both engines: what a request asks for, and how an answer is shaped."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, NamedTuple

from .answers import answer, count_tokens, extend, tokens_of, tool_arguments
from .http_server import Response, json_response
from .pictures import colour_of
from .settings import Settings

END_OF_THOUGHT = "</think>"
DEFAULT_COMPLETION_TOKENS = 16
# A chat template frames each message and opens the answer.
FRAME_TOKENS = 3
OPENING_TOKENS = 2


class Rejected(Exception):
    """A request that the engine answers with an error."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param


class Dialect(NamedTuple):
    """Where two engines' OpenAI interfaces differ."""

    reasoning_field: str
    knows_models: bool
    needs_tool_parser: bool
    wraps_errors: bool
    has_kv_params: bool


class Job(NamedTuple):
    """One request, understood."""

    identity: str
    path: str
    is_chat: bool
    is_stream: bool
    has_usage_chunk: bool
    counts_every_chunk: bool
    model: str
    num_prompt_tokens: int
    num_choices: int
    max_tokens: int
    tokens: tuple[str, ...]
    tool: str | None
    kv_params: dict[str, Any] | None
    body: dict[str, Any]


VLLM = Dialect(
    reasoning_field="reasoning",
    knows_models=True,
    needs_tool_parser=True,
    wraps_errors=True,
    has_kv_params=True,
)
SGLANG = Dialect(
    reasoning_field="reasoning_content",
    knows_models=False,
    needs_tool_parser=False,
    wraps_errors=False,
    has_kv_params=False,
)


def new_id() -> str:
    """Return 32 random hexadecimal digits."""
    return os.urandom(16).hex()


def error_response(dialect: Dialect, rejected: Rejected) -> Response:
    """Return the engine's error body."""
    content: dict[str, Any] = {
        "message": rejected.message,
        "type": rejected.kind,
        "param": rejected.param,
        "code": rejected.status,
    }
    wrapped = {"error": content} if dialect.wraps_errors else {"object": "error", **content}
    return json_response(wrapped, rejected.status)


def understand(
    settings: Settings, dialect: Dialect, path: str, body: Any, request_id: str | None
) -> Job:
    """Check a request and prepare its answer.

    Raises:
        Rejected: the engine refuses it.
    """
    if not isinstance(body, dict):
        raise Rejected(
            400,
            "Bad Request",
            "[{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error'}]",
        )
    model = body.get("model") or settings.served_names[0]
    if dialect.knows_models:
        check_model(settings, body)
    is_chat = path.endswith("/chat/completions")
    if dialect.wraps_errors:
        check_support(settings, body, is_chat=is_chat)
    prompt, pictures = _prompt(body, is_chat=is_chat)
    num_images = len(pictures)
    if num_images and dialect.wraps_errors and not settings.checkpoint.has_vision:
        raise Rejected(400, "BadRequestError", f"{model} is not a multimodal model")
    if num_images and not settings.features.has_images:
        raise Rejected(400, "BadRequestError", "At most 0 image(s) may be provided in one prompt.")
    tool = _chosen_tool(settings, dialect, body)
    # an empty message is none of the tokens of a chat; of a completion it cannot be
    num_prompt_tokens = count_tokens(prompt) if prompt or not is_chat else 0
    num_prompt_tokens += 256 * num_images
    if is_chat:
        num_prompt_tokens += FRAME_TOKENS * len(body["messages"]) + OPENING_TOKENS
    max_tokens = _max_tokens(settings, dialect, body, num_prompt_tokens, is_chat=is_chat)
    text = prompt if isinstance(prompt, str) else ""
    picture = pictures[-1] if pictures else None
    tokens = _tokens(settings, body, text, tool, picture)
    if body.get("ignore_eos") or (body.get("min_tokens") or 0) > len(tokens):
        tokens = extend(tokens, max_tokens if body.get("ignore_eos") else int(body["min_tokens"]))
    options = body.get("stream_options") or {}
    return Job(
        identity=f"{'chatcmpl' if is_chat else 'cmpl'}-{request_id or body.get('request_id') or new_id()}",
        path=path,
        is_chat=is_chat,
        is_stream=bool(body.get("stream")),
        has_usage_chunk=bool(options.get("include_usage")),
        counts_every_chunk=bool(options.get("continuous_usage_stats")),
        model=model,
        num_prompt_tokens=num_prompt_tokens,
        num_choices=_num_prompts(prompt) * int(body.get("n") or 1),
        max_tokens=max_tokens,
        tokens=tokens,
        tool=tool["function"]["name"] if tool is not None else None,
        kv_params=body.get("kv_transfer_params"),
        body=body,
    )


def check_model(settings: Settings, body: dict[str, Any]) -> None:
    """Check that a named model is one that is served.

    Raises:
        Rejected: it is not.
    """
    model = body.get("model") or settings.served_names[0]
    if model not in settings.served_names:
        raise Rejected(404, "NotFoundError", f"The model `{model}` does not exist.", "model")


def check_support(settings: Settings, body: dict[str, Any], *, is_chat: bool) -> None:
    """What vLLM 0.22.1 has no use for, though its fields are well.

    Raises:
        Rejected: in its words.
    """
    if not is_chat and body.get("suffix"):
        raise Rejected(400, "BadRequestError", "suffix is not currently supported")
    if is_chat and body.get("chat_template") and not settings.features.takes_templates:
        reason = (
            "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
            "untrusted chat template."
        )
        raise Rejected(400, "BadRequestError", reason)


def check_tokens(settings: Settings, body: dict[str, Any]) -> None:
    """Check token ids against the model's vocabulary.

    Raises:
        Rejected: one is beyond it, or a prompt has none.
    """
    prompt, size = body.get("prompt"), settings.checkpoint.vocabulary
    ids = prompt if isinstance(prompt, list) else []
    for each in [ids] if ids and isinstance(ids[0], int) else ids:
        if each == []:
            raise Rejected(400, "BadRequestError", "The decoder prompt cannot be empty")
        beyond = [x for x in each if size and isinstance(x, int) and x >= size]
        if beyond:
            raise Rejected(400, "BadRequestError", f"Token id {max(beyond)} is out of vocabulary")


def engine_request(job: Job) -> dict[str, Any]:
    """Return what the engine core needs of a job."""
    return {
        "request_id": job.identity,
        "path": job.path,
        "num_prompt_tokens": job.num_prompt_tokens,
        "max_tokens": job.max_tokens,
        "tokens": list(job.tokens),
        "kv_transfer_params": job.kv_params,
        "prefix": _prefix(job.body),
    }


def _prefix(body: dict[str, Any]) -> int:
    """What a prefix cache knows a prompt by: its words, and the salt that keeps them apart from the same ones."""
    words = [body.get(name) for name in ("cache_salt", "messages", "prompt", "text", "input_ids")]
    return zlib.crc32(json.dumps(words).encode())


def _prompt(body: dict[str, Any], *, is_chat: bool) -> tuple[Any, list[str]]:
    """Return the text or tokens of a prompt, and the colour of each of its pictures."""
    field = "messages" if is_chat else "prompt"
    content = body.get(field)
    if is_chat and content == []:
        message = (
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
        raise Rejected(400, "BadRequestError", message)
    if content is None or content == []:
        detail = f"[{{'type': 'missing', 'loc': ('body', '{field}'), 'msg': 'Field required', 'input': {{}}}}]"
        raise Rejected(400, "Bad Request", detail)
    if not is_chat:
        return content, []
    texts, pictures = [], []
    for message in content:
        parts = message.get("content") or ""
        for part in parts if isinstance(parts, list) else [{"type": "text", "text": parts}]:
            if part.get("type") in ("text", "input_text"):
                texts.append(str(part.get("text", "")))
            elif "image" in str(part.get("type")):
                pictures.append(colour_of(part))
            else:
                raise Rejected(400, "BadRequestError", f"Unknown part type: {part.get('type')}")
    return "\n".join(texts), pictures


def _chosen_tool(
    settings: Settings, dialect: Dialect, body: dict[str, Any]
) -> dict[str, Any] | None:
    tools = body.get("tools")
    choice = body.get("tool_choice", "auto" if tools else "none")
    if not tools or choice in ("none", None):
        return None
    is_answered = body.get("messages", [{}])[-1].get("role") == "tool"
    features = settings.features
    if choice == "auto" and not (features.has_auto_tools and features.tool_parser):
        if dialect.needs_tool_parser:
            raise Rejected(
                400,
                "BadRequestError",
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            )
        if not features.tool_parser:
            return None
    if choice != "auto" and not features.tool_parser and dialect.needs_tool_parser:
        message = f'tool_choice="{choice}" requires --tool-call-parser to be set'
        raise Rejected(400, "BadRequestError", message)
    if isinstance(choice, dict):
        wanted = choice.get("function", {}).get("name")
        for tool in tools:
            if tool["function"]["name"] == wanted:
                return dict(tool)
        raise Rejected(
            400,
            "BadRequestError",
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
        )
    return None if is_answered and choice == "auto" else dict(tools[0])


def _max_tokens(
    settings: Settings, dialect: Dialect, body: dict[str, Any], num_prompt: int, *, is_chat: bool
) -> int:
    limit = settings.max_model_len
    wanted = body.get("max_completion_tokens") or body.get("max_tokens")
    output = int(wanted) if wanted is not None else 0
    if dialect.wraps_errors and output > limit:
        message = (
            f"max_tokens={output} cannot be greater than max_model_len=max_total_tokens={limit}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={output})"
        )
        raise Rejected(400, "BadRequestError", message, "max_tokens")
    if num_prompt + output > limit or num_prompt >= limit:
        total = num_prompt + output
        if dialect.wraps_errors:
            raise _too_long(body, limit, output)
        raise Rejected(
            400,
            "BadRequestError",
            f"Requested token count exceeds the model's maximum context length of {limit} tokens. You "
            f"requested a total of {total} tokens: {num_prompt} tokens from the input messages and {output} "
            "tokens for the completion. Please reduce the number of tokens in the input messages or the "
            "completion to fit within the limit.",
        )
    if wanted is None:
        return limit - num_prompt if is_chat else DEFAULT_COMPLETION_TOKENS
    return output


def _too_long(body: dict[str, Any], limit: int, output: int) -> Rejected:
    """Return vLLM's refusal; it reads no more of a prompt than it needs to know that it is too long."""
    start = f"This model's maximum context length is {limit} tokens. However, you requested {output} output tokens and "
    end = "Please reduce the length of the input prompt or the number of requested output tokens."
    prompt = body.get("prompt")
    if output >= limit and isinstance(prompt, str):
        size = len(prompt)
        reason = (
            f"your prompt contains {size} characters (more than 0 characters, which is the upper bound for 0 input "
            f"tokens). {end} (parameter=input_text, value={size})"
        )
        return Rejected(400, "BadRequestError", start + reason, "input_text")
    if isinstance(prompt, list) and count_tokens(prompt) > limit:  # token ids, which it has counted
        size = count_tokens(prompt)
        reason = (
            f"your prompt contains {size} input tokens, for a total of {size + output} tokens. {end} "
            f"(parameter=input_tokens, value={size})"
        )
        return Rejected(400, "BadRequestError", start + reason, "input_tokens")
    least = max(limit - output, 0) + 1
    reason = (
        f"your prompt contains at least {least} input tokens, for a total of at least {least + output} tokens. "
        f"{end} (parameter=input_tokens, value={least})"
    )
    return Rejected(400, "BadRequestError", start + reason, "input_tokens")


def _num_prompts(prompt: Any) -> int:
    """Return how many prompts a completion is asked for: a list of numbers is one."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1


def _tokens(
    settings: Settings,
    body: dict[str, Any],
    prompt: str,
    tool: dict[str, Any] | None,
    picture: str | None,
) -> tuple[str, ...]:
    messages = body.get("messages")
    is_chat = messages is not None
    # the template of Kimi-K2.5 alone has the switch
    has_switch = "Kimi" in settings.checkpoint.architecture
    is_off = (body.get("chat_template_kwargs") or {}).get("thinking", True) is False
    is_reasoner = (
        "kimi" in settings.checkpoint.model_type or "Kimi" in settings.checkpoint.architecture
    )
    thinks = (
        is_chat
        and not (is_off and has_switch)
        and (is_reasoner or settings.features.reasoning_parser is not None)
    )
    said = answer(prompt, is_chat=is_chat, picture=picture, thinks=thinks)
    content = said.content
    if tool is not None:
        content = tokens_of(tool_arguments(tool, prompt, picture))
    elif is_chat and messages and messages[-1].get("role") == "tool":
        content = tokens_of(f"The tool says: {messages[-1].get('content')}.")
    marker = (END_OF_THOUGHT,) if said.thought else ()
    return (*said.thought, *marker, *content)
