"""What a released vLLM accepts: its own parser and classes, built by its own code over stand-ins."""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from infra.packages.attention_backends import attention_backends, mla_prefill_backends
from infra.packages.config_classes import class_rows, classes_in, kinds_of, own_hints
from infra.packages.flag_rows import flag_rows
from infra.packages.source_text import listed_variables
from infra.packages.standins import install
from infra.packages.variable_readers import taken_values

SERVE, BENCH = "vllm serve", "vllm bench serve"
# Python's own types say all by themselves; of a flag with another reader the annotation says what it takes.
_SAID = ("bool", "int", "float", "str")
# Parsed as a plain object, and built with the configuration.
_BUILT_LATER = "SpeculativeConfig"


def read_vllm(folder: Path) -> dict[str, Any]:
    """The sections of a catalogue, for a vLLM unpacked into a folder.

    Only for a process of its own: stand-ins stay in its import system.
    """
    install(folder, ("vllm",))
    sys.argv = ["vllm"]
    _take_the_place_of_a_device()
    source = folder / "vllm"
    parser = _serve_parser()
    hints = _hints(parser)
    commands = {SERVE: flag_rows(parser), BENCH: flag_rows(_bench_parser())}
    for row in commands[SERVE]:
        dest = row.get("dest", row["name"].lstrip("-").replace("-", "_"))
        if dest in hints and row.get("type") not in _SAID:
            row["kinds"] = kinds_of(hints[dest])
    return {
        "commands": commands,
        "classes": _classes(hints),
        "names": {
            "kv_connectors": sorted(
                _of("distributed.kv_transfer.kv_connector.factory", "KVConnectorFactory")._registry  # noqa: SLF001
            ),
            "reasoning_parsers": sorted(
                _of("reasoning", "ReasoningParserManager").list_registered()
            ),
            "tool_call_parsers": sorted(_of("tool_parsers", "ToolParserManager").list_registered()),
        },
        "attention_backends": attention_backends(folder),
        "mla_prefill_backends": mla_prefill_backends(folder),
        "models": sorted(_of("model_executor.models.registry", "_VLLM_MODELS")),
        "variables": _variables(source),
    }


def _variables(source: Path) -> list[dict[str, Any]]:
    """The rows of the package's table, each with what its reader takes."""
    taken = taken_values(_of("envs", "environment_variables"))
    rows = listed_variables(source / "envs.py", "environment_variables")
    return [row | taken.get(row["name"], {}) for row in rows]


def _of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"vllm.{module}"), name)


def _take_the_place_of_a_device() -> None:
    """A platform without a device, as CUDA's: the parser asks which one it is and nothing else of it."""
    interface: Any = importlib.import_module("vllm.platforms.interface")
    body = {
        "_enum": interface.PlatformEnum.CUDA,
        "device_name": "cuda",
        "device_type": "cuda",
        "dispatch_key": "CUDA",
    }
    platforms: Any = importlib.import_module("vllm.platforms")
    platforms._current_platform = type("Platform", (interface.Platform,), body)()  # noqa: SLF001 - where vLLM keeps it


def _serve_parser() -> ArgumentParser:
    """`make_arg_parser` moved in 0.33.0."""
    for place in ("entrypoints.openai.cli_args", "entrypoints.common.cli_args"):
        try:
            make = _of(place, "make_arg_parser")
        except ModuleNotFoundError:
            continue
        parser: ArgumentParser = make(_of("utils.argparse_utils", "FlexibleArgumentParser")())
        return parser
    message = "vllm has no make_arg_parser in any place that is known"
    raise ModuleNotFoundError(message)


def _bench_parser() -> ArgumentParser:
    parser: ArgumentParser = _of("utils.argparse_utils", "FlexibleArgumentParser")()
    _of("benchmarks.serve", "add_cli_args")(parser)
    return parser


def _hints(parser: ArgumentParser) -> dict[str, Any]:
    """The annotation of every flag, by the name under which it is stored.

    The parser takes it from the class after which it names the flag's group; the others stand in the classes
    that hold the server's arguments.
    """
    hints: dict[str, Any] = {}
    for place in ("entrypoints.openai.cli_args", "entrypoints.common.cli_args"):
        try:
            hints.update(own_hints(_of(place, "FrontendArgs")))
        except ModuleNotFoundError:
            continue
    hints.update(own_hints(_of("engine.arg_utils", "AsyncEngineArgs")))
    config: Any = importlib.import_module("vllm.config")
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no other way to list groups
        known = getattr(config, group.title or "", None)
        if isinstance(known, type):
            own = own_hints(known)
            dests = [action.dest for action in group._group_actions]  # noqa: SLF001
            plain = {dest for dest in dests if "dict" in kinds_of(hints.get(dest))}
            hints.update(
                {
                    dest: own[dest]
                    for dest in dests
                    if dest in own and not (dest in plain and _has_class(own[dest]))
                }
            )
    return hints


def _has_class(hint: object) -> bool:
    """Whether a flag that the parser takes for a plain object becomes a class later, with the whole configuration."""
    return any(True for _ in classes_in(hint))


def _classes(hints: dict[str, Any]) -> dict[str, Any]:
    """The classes that flags take as JSON, and those inside them."""
    found: dict[str, Any] = {}
    waiting = [kind for hint in hints.values() for kind in classes_in(hint)]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ not in found:
            found[kind.__name__] = class_rows(kind)
            waiting += [each for hint in own_hints(kind).values() for each in classes_in(hint)]
    found[_BUILT_LATER] = class_rows(_of("config", _BUILT_LATER))
    return {name: found[name] for name in sorted(found)}
