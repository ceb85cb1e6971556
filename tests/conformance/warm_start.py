"""Starts `vllm` many times for the price of one import: a process that has imported it is forked for each.

    ENGINE/bin/python warm_start.py

Runs in the engine's own Python, apart from the tests. It reads one order per line, {"words", "env", "folder", "log"},
and writes {"pid"} when that one runs and {"code"} when it has left. What is run is the released program's `main`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from typing import Any

# All that `vllm serve` imports before it has judged its arguments.
IMPORTED = (
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.cli.launch",
    "vllm.entrypoints.cli.openai",
    "vllm.entrypoints.cli.run_batch",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.async_llm",
)


def serve_orders() -> dict[str, Any] | None:
    """Fork for every order; in the child the order, in the parent None at the end."""
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in IMPORTED:
        importlib.import_module(name)
    know_flags()
    told.write(json.dumps({"ready": True}) + "\n")
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            told.close()
            order: dict[str, Any] = json.loads(line)
            return order
        told.write(json.dumps({"pid": pid}) + "\n")
        _, status = os.waitpid(pid, 0)
        told.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
    return None


def know_flags() -> None:
    """Build the parser of `vllm serve` once: it reads its help texts out of its own source, and keeps them."""
    serve = importlib.import_module("vllm.entrypoints.cli.serve")
    parsers = importlib.import_module("vllm.utils.argparse_utils")
    commands = parsers.FlexibleArgumentParser().add_subparsers()
    serve.ServeSubcommand().subparser_init(commands)
    importlib.import_module("transformers.models.qwen3_moe.configuration_qwen3_moe")


def become(order: dict[str, Any]) -> None:
    """Take on what a program of its own would have been started with."""
    os.setsid()
    os.chdir(order["folder"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None
    sys.argv = order["words"]


if __name__ == "__main__":
    found = serve_orders()
    if found is not None:
        become(found)
        sys.exit(importlib.import_module("vllm.entrypoints.cli.main").main())
