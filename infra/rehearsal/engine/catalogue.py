"""Reads what the pinned releases accept: flags, environment variables and fields of JSON flags."""

from __future__ import annotations

import json
import os
from functools import cache
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
    attention_backends: dict[str, dict[str, Any]]
    mla_prefill_backends: dict[str, dict[str, Any]]


class Attention(NamedTuple):
    """What vLLM tries by itself for dense latent attention, by devices, and what computes it on Hopper alone."""

    orders: dict[str, tuple[str, ...]]
    dense_on_hopper_alone: tuple[str, ...]


def catalogue_folder() -> str:
    """Return the folder that holds ``packages/``, ``combinations/`` and ``attention/``."""
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "catalog")
    return os.environ.get(FOLDER_VARIABLE) or os.path.normpath(default)


def read_flags(tool: str, version: str) -> tuple[Flag, ...]:
    """Return the flags of one release; what is usual is left out of its file."""
    return tuple(_flag(row) for row in _server_rows(_read(tool, version)))


def read_variables(tool: str, version: str) -> frozenset[str]:
    """Return the names of the environment variables that one release reads."""
    return frozenset(row["name"] for row in _read(tool, version)["variables"])


def read_variable_readers(version: str) -> dict[str, dict[str, Any]]:
    """Return what one vLLM release takes as values of its variables, by name; others may be anything."""
    rows = _read("vllm", version)["variables"]
    return {row["name"]: row for row in rows if "reads" in row or "choices" in row}


def read_architectures(version: str) -> frozenset[str]:
    """Return the classes of models that one vLLM release knows."""
    return frozenset(_read("vllm", version)["models"])


def read_additional_keys(version: str) -> frozenset[str]:
    """Return the keys that ``--additional-config`` of one vllm-ascend release knows."""
    return frozenset(_read("vllm-ascend", version)["names"]["additional_config_keys"])


def read_fields(version: str) -> JsonFields:
    """Return what the JSON-valued flags of one vLLM release may hold."""
    document = _read("vllm", version)
    return JsonFields(
        flag_types={row["name"]: row["kinds"] for row in _server_rows(document) if "kinds" in row},
        classes={
            name: {field: row["kinds"] for field, row in fields.items()}
            for name, fields in document["classes"].items()
        },
        tool_call_parsers=tuple(document["names"]["tool_call_parsers"]),
        reasoning_parsers=tuple(document["names"]["reasoning_parsers"]),
        attention_backends=document.get("attention_backends", {}),
        mla_prefill_backends=document.get("mla_prefill_backends", {}),
    )


def read_names(tool: str, version: str, kind: str) -> frozenset[str]:
    """Return the names that one release registers under a kind."""
    return frozenset(_read(tool, version)["names"].get(kind, ()))


def read_attention() -> Attention:
    """Return the order in which every vLLM release that was read tries its attention back ends."""
    document = _document(os.path.join(catalogue_folder(), "attention", "vllm.json"))
    return Attention(
        orders={devices: tuple(names) for devices, names in document["orders"].items()},
        dense_on_hopper_alone=tuple(document["dense_on_hopper_alone"]),
    )


def _flag(row: dict[str, Any]) -> Flag:
    name = row["name"]
    is_positional = not name.startswith("-")
    choices = row.get("choices")
    return Flag(
        name=name,
        options=() if is_positional else tuple(row.get("options", (name,))),
        dest=row.get("dest", name.lstrip("-").replace("-", "_")),
        type=row.get("type"),
        action=row.get("action", "_StoreAction"),
        nargs=row.get("nargs"),
        choices=None if choices is None else tuple(choices),
        default=row.get("default"),
        is_required=row.get("required", False),
    )


def _server_rows(document: Any) -> list[dict[str, Any]]:
    """Return the rows of the command that serves: vLLM's file has its benchmark's, too."""
    commands: dict[str, list[dict[str, Any]]] = document["commands"]
    return next(rows for command, rows in commands.items() if "bench" not in command)


def _read(tool: str, version: str) -> Any:
    path = os.path.join(catalogue_folder(), "packages", f"{tool}-{version}.json")
    try:
        return _document(path)
    except OSError as error:
        raise Failed(
            "moe-infra rehearsal",
            f"no catalogue of {tool} {version} at {path}: {error.strerror}",
            process="",
        ) from error


@cache  # an engine asks a release for several things
def _document(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)
