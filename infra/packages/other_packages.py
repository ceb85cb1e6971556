"""What released packages of SGLang, vllm-ascend and the two routers accept."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from infra.packages.flag_rows import flag_rows
from infra.packages.source_text import (
    conversation_names,
    declared_variables,
    entry_classes,
    keys_read,
    listed_variables,
    read_variables,
    registered,
    renamed_variables,
    table_keys,
)
from infra.packages.standins import install

_RENAMING = "_print_deprecated_env"
# They look for an accelerator while they are imported, or change transformers; no flag comes from them.
_SGLANG_LEFT_OUT = (
    "sglang.srt.layers",
    "sglang.kernels.ops.attention",
    "sglang.srt.utils.hf_transformers_patches",
)


def read_sglang(folder: Path) -> dict[str, Any]:
    """The sections of a catalogue, for an SGLang unpacked into a folder; only for a process of its own."""
    install(folder, ("sglang",), _SGLANG_LEFT_OUT)
    parser = ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    source = folder / "sglang" / "srt"
    declared = declared_variables(source / "environ.py", "Envs")
    known = {row["name"] for row in declared}
    more = {row["name"]: row for row in renamed_variables(source / "environ.py", _RENAMING)}
    more |= {row["name"]: row for row in read_variables(folder / "sglang", ("SGLANG_", "SGL_"))}
    read = [row for name, row in more.items() if name not in known]
    return {
        "commands": {"python -m sglang.launch_server": flag_rows(parser)},
        "names": {
            "attention_backends": registered(
                source / "layers" / "attention", "register_attention_backend"
            ),
            "chat_templates": conversation_names(source / "parser" / "conversation.py"),
            "draft_attention_backends": table_keys(
                source / "speculative" / "draft_utils.py", "backend_map"
            ),
        },
        "models": entry_classes(source / "models"),
        "variables": sorted([*declared, *read], key=lambda row: str(row["name"])),
    }


def read_vllm_ascend(folder: Path) -> dict[str, Any]:
    """The sections of a catalogue, for a vllm-ascend unpacked into a folder: its flags are those of its vLLM."""
    source = folder / "vllm_ascend"
    return {
        "names": {
            "additional_config_keys": keys_read(source, "additional_config"),
            "kv_connectors": registered(
                source / "distributed" / "kv_transfer", "register_connector"
            ),
        },
        "models": registered(source, "register_model"),
        "variables": listed_variables(source / "envs.py", "env_variables"),
    }


def read_vllm_router(folder: Path) -> dict[str, Any]:
    """The sections of a catalogue, for a vllm-router unpacked into a folder; only for a process of its own."""
    install(folder, ("vllm_router",))
    launch: Any = importlib.import_module("vllm_router.launch_router")
    return _router(folder / "vllm_router", "vllm-router", launch)


def read_sglang_router(folder: Path) -> dict[str, Any]:
    """The sections of a catalogue, for an sglang-router unpacked into a folder; only for a process of its own."""
    install(folder, ("sglang_router",))
    launch: Any = importlib.import_module("sglang_router.launch_router")
    return _router(folder / "sglang_router", "python -m sglang_router.launch_router", launch)


def _router(source: Path, command: str, launch: Any) -> dict[str, Any]:
    """Both routers build their parser out of the same class; the compiled part takes what it gives."""
    parser = ArgumentParser()
    launch.RouterArgs.add_cli_args(parser, use_router_prefix=False)
    return {"commands": {command: flag_rows(parser)}, "variables": read_variables(source, ("",))}
