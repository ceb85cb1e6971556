"""Names that vLLM does not check while it parses: parsers, quantisation methods, attention back ends."""

from __future__ import annotations

import os

from .catalogue import JsonFields
from .command_line import Arguments
from .failures import Failed, invalid
from .settings import Release

# In the released image; an absolute path stays what it is.
TEMPLATES = "/usr/local/lib/python3.12/dist-packages/vllm/transformers_utils/chat_templates"


def check_registered(args: Arguments, fields: JsonFields, release: Release) -> None:
    """Check parsers, quantisation methods and the attention back end.

    Raises:
        Failed: vLLM's own KeyError or ValueError.
    """
    tool, reasoning = args["tool_call_parser"], args["reasoning_parser"]
    has_server = not args["headless"]
    if args["enable_auto_tool_choice"] and has_server and tool not in fields.tool_call_parsers:
        names = ",".join(fields.tool_call_parsers)
        reason = f"'invalid tool call parser: {tool} (chose from {{ {names} }})'"
        raise Failed("KeyError", reason)
    if reasoning and reasoning not in fields.reasoning_parsers:
        if release.numbers >= (0, 22):
            names = ", ".join(fields.reasoning_parsers)
            reason = f"\"Reasoning parser '{reasoning}' not found. Available parsers: {names}\""
            raise Failed("KeyError", reason)
        names = ",".join(fields.reasoning_parsers)
        reason = f"'invalid reasoning parser: {reasoning} (chose from {{ {names} }})'"
        raise Failed("KeyError", reason)
    kinds = fields.flag_types.get("--quantization", [])
    methods = [kind[8:] for kind in kinds if kind.startswith("literal:")]
    if release.engine == "vllm-ascend":
        methods.append("ascend")
    if args["quantization"] and methods and args["quantization"] not in methods:
        reason = f"Unknown quantization method: {args['quantization']}. Must be one of {methods}."
        raise invalid("ModelConfig", reason)
    backend = str(args["attention_backend"] or "").upper()
    known = fields.attention_backends
    if backend and known and backend != "AUTO" and backend not in known:
        names = ", ".join(known)
        reason = f"Unknown attention backend: '{backend}'. Valid options are: {names}"
        raise Failed("ValueError", reason)


def check_chat_template(template: str | None) -> None:
    """A chat template that is no text of one is a file.

    Raises:
        Failed: vLLM's own ValueError.
    """
    if not template or any(mark in template for mark in "{}\n") or os.path.isfile(template):
        return
    raise Failed(
        "ValueError",
        f"The supplied chat template string ({template}) appears path-like, but doesn't exist! "
        f"Tried: {template} and {os.path.join(TEMPLATES, template)}",
        process="",
    )
