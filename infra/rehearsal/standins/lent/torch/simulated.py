"""The simulated host that this torch runs on, as the simulated engine sees it, and the host's faults."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

NOTICE = "moe-infra rehearsal stand-in"
# The simulated engine lies beside the stand-ins, here and on simulated hosts alike.
sys.path.insert(0, os.path.abspath(__file__).rsplit("/standins/", 1)[0])
WORLD = importlib.import_module("engine.world").read_world(dict(os.environ))


def faults() -> dict[str, Any]:
    """What `host.json` says under `faults`."""
    with open(f"{WORLD.state}/host.json", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file).get("faults") or {}
    return found


def library_lines(num_ranks: int) -> list[str]:
    """What NCCL logs of the way that it takes between hosts."""
    lines: list[str] = importlib.import_module("engine.network").nccl_lines(WORLD, num_ranks)
    return lines
