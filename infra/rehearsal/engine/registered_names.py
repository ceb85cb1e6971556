"""Names that vLLM does not check while it parses: parsers, quantisation methods, attention back ends."""

from __future__ import annotations

import os

from .catalogue import JsonFields
from .checkpoint import Checkpoint
from .command_line import Arguments
from .failures import Failed, invalid
from .settings import Release
from .world import World

PLATFORMS = {"nvidia": "cuda", "amd": "rocm"}
# In the released image; an absolute path stays what it is.
TEMPLATES = "/usr/local/lib/python3.12/dist-packages/vllm/transformers_utils/chat_templates"


def check_registered(args: Arguments, fields: JsonFields, release: Release) -> None:
    """Check parsers and attention back ends.

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
    backend = str(args["attention_backend"] or "").upper()
    known = fields.attention_backends
    if backend and known and backend != "AUTO" and backend not in known:
        names = ", ".join(known)
        reason = f"Unknown attention backend: '{backend}'. Valid options are: {names}"
        raise Failed("ValueError", reason)
    prefill, known_prefill = mla_prefill_backend(args), fields.mla_prefill_backends
    if prefill and known_prefill and prefill not in known_prefill:
        names = ", ".join(known_prefill)
        reason = f"Unknown MLA prefill backend: '{prefill}'. Valid options are: {names}"
        raise Failed("ValueError", reason)


def check_quantization_method(method: str | None, fields: JsonFields, release: Release) -> None:
    """Check that the method of a model is one of the release's.

    Raises:
        Failed: vLLM's own ValueError.
    """
    kinds = fields.flag_types.get("--quantization", [])
    methods = [kind[8:] for kind in kinds if kind.startswith("literal:")]
    if release.engine == "vllm-ascend":
        methods.append("ascend")
    if method and methods and method not in methods:
        reason = f"Unknown quantization method: {method}. Must be one of {methods}."
        raise invalid("ModelConfig", reason)


def mla_prefill_backend(args: Arguments) -> str:
    """Return the name, in capitals, of what multi-head latent attention is to prefill with; empty for no wish."""
    config = args["attention_config"]
    return str(config.get("mla_prefill_backend") or "").upper() if isinstance(config, dict) else ""


def check_mla_prefill(
    args: Arguments, fields: JsonFields, checkpoint: Checkpoint, world: World
) -> None:
    """Check that it runs on the device: each layer of such a model asks, once workers load it.

    Raises:
        Failed: vLLM's own ValueError.
    """
    name = mla_prefill_backend(args)
    row = fields.mla_prefill_backends.get(name, {})
    limits, platforms = row.get("capabilities"), row.get("platforms", ())
    platform = PLATFORMS.get(world.vendor)
    if platform is None or not platforms or not checkpoint.is_mla:
        return
    is_limited = limits is not None and limits[0].startswith("10.")
    if platform in platforms and not (is_limited and not world.is_blackwell):
        return
    raise Failed(
        "ValueError",
        f"Selected MLA prefill backend {name} is not valid for this configuration. "
        "Reason: ['compute capability not supported']",
        process="Worker",
    )


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
