"""Reads what the pinned releases accept: flags, environment variables and fields of JSON flags."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from .failures import Failed

FOLDER_VARIABLE = "MOE_REHEARSAL_CATALOGUES"


class Flag(NamedTuple):
    """One option of a command line, as argparse knows it."""

    name: str
    options: tuple[str, ...]
    dest: str
    type: str | None
    action: str
    nargs: str | int | None
    choices: tuple[Any, ...] | None
    default: Any
    is_required: bool


class JsonFields(NamedTuple):
    """What the JSON-valued flags of one release may hold."""

    flag_types: dict[str, list[str]]
    classes: dict[str, dict[str, list[str]]]
    tool_call_parsers: tuple[str, ...]
    reasoning_parsers: tuple[str, ...]


def catalogue_folder() -> str:
    """Return the folder that holds ``flags/``, ``envs/`` and ``fields/``."""
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "catalog")
    return os.environ.get(FOLDER_VARIABLE) or os.path.normpath(default)


def read_flags(tool: str, version: str) -> list[Flag]:
    """Return the flags of one release."""
    return [
        Flag(
            name=item["name"],
            options=tuple(item["options"]),
            dest=item["dest"],
            type=item["type"],
            action=item["action"],
            nargs=item["nargs"],
            choices=None if item["choices"] is None else tuple(item["choices"]),
            default=item["default"],
            is_required=item["required"],
        )
        for item in _read("flags", tool, version)["flags"]
    ]


def read_variables(tool: str, version: str) -> frozenset[str]:
    """Return the names of the environment variables that one release reads."""
    return frozenset(item["name"] for item in _read("envs", tool, version)["envs"])


def read_additional_keys(version: str) -> frozenset[str]:
    """Return the keys that ``--additional-config`` of one vllm-ascend release knows."""
    return frozenset(_read("envs", "vllm-ascend", version)["additional_config_keys"])


def read_fields(version: str) -> JsonFields:
    """Return what the JSON-valued flags of one vLLM release may hold."""
    document = _read("fields", "vllm", version)
    return JsonFields(
        flag_types=document["flag_types"],
        classes=document["classes"],
        tool_call_parsers=tuple(document["tool_call_parsers"]),
        reasoning_parsers=tuple(document["reasoning_parsers"]),
    )


def _read(kind: str, tool: str, version: str) -> Any:
    path = os.path.join(catalogue_folder(), kind, f"{tool}-{version}.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise Failed(
            "moe-infra rehearsal",
            f"no catalogue of {tool} {version} at {path}: {error.strerror}",
            process="",
        ) from error
