"""Settings that a release refuses together, in its own words: the rows of the catalogue's ``combinations/``."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from typing import Any

from .catalogue import catalogue_folder
from .checkpoint import Checkpoint
from .command_line import Arguments
from .failures import Failed, invalid
from .parallel import Version

# Sizes that are 1 where a command line does not name them.
ONES = frozenset(
    {
        "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "decode-context-parallel-size",
        "dcp-kv-cache-interleave-size", "max-num-partial-prefills", "max-long-partial-prefills",
        "expert-parallel-size", "moe-data-parallel-size", "attention-context-parallel-size",
        "attention-data-parallel-size",
    }
)  # fmt: skip
ANY_CASE = frozenset({"speculative-algorithm"})  # SGLang reads its value so
TIMES = " * "  # between settings whose values are multiplied
# Destinations of SGLang that are not the flag's longest spelling.
SHORT = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "attention_context_parallel_size": "attn_cp_size",
    "attention_data_parallel_size": "attn_dp_size",
    "elastic_ep_join_mode": "ep_join_mode",
    "decode_context_parallel_size": "dcp_size",
    "moe_data_parallel_size": "moe_dp_size",
}
PLACE = re.compile(r"\{([a-zA-Z][\w.-]*)\}")

Look = Callable[[str], Any]


def check_combinations(
    package: str, engine: str, version: Version, look: Look, configures: str = "APIServer"
) -> None:
    """Check what a release's own code refuses in several settings together.

    Args:
        package: whose file of the catalogue.
        engine: whose process this is.
        version: of the package.
        look: setting → value, None for one that is not set.
        configures: the process that says what no row attributes to another.

    Raises:
        Failed: the release's own error.
    """
    path = os.path.join(catalogue_folder(), "combinations", f"{package}.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    for row in sorted(rows, key=lambda row: "process" in row):  # configuration comes before workers
        if _is_of(row, engine, version) and _is_met(row, look):
            says = PLACE.sub(lambda match: str(_value(match[1], look)), row["says"])
            if row["kind"].endswith("Config"):
                raise invalid(row["kind"], says)
            raise Failed(row["kind"], says, row.get("process", configures))


def settings_of(args: Arguments, environ: dict[str, str], checkpoint: Checkpoint) -> Look:
    """Return what looks a setting up: a flag, a key in a JSON flag behind a dot, ``env.`` or ``model.`` and a name."""

    def look(name: str) -> Any:
        if name.startswith("model."):
            return {"is_mla": checkpoint.is_mla, "architecture": checkpoint.architecture}[name[6:]]
        if name.startswith("env."):
            return environ.get(name[4:])
        flag, *keys = name.split(".")
        dest = flag.replace("-", "_")
        value = args[dest] if args[dest] is not None else args[SHORT.get(dest, dest)]
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return look


def _is_of(row: dict[str, Any], engine: str, version: Version) -> bool:
    last = row.get("last")
    is_late = version >= _numbers(row["first"])
    return (
        engine in row.get("engines", [engine])
        and is_late
        and (last is None or version <= _numbers(last))
    )


def _is_met(row: dict[str, Any], look: Look) -> bool:
    if any(look(name) not in (None, False) for name in row.get("unless", ())):
        return False
    return all(
        _holds(condition, _value(name, look), look) for name, condition in row["when"].items()
    )


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _value(name: str, look: Look) -> Any:
    if TIMES in name:
        sizes = [_number(_value(each, look)) for each in name.split(TIMES)]
        return None if None in sizes else math.prod(sizes)
    value = look(name)
    if name in ANY_CASE and isinstance(value, str):
        return value.upper()
    return 1 if value is None and name in ONES else value


def _holds(condition: Any, value: Any, look: Look) -> bool:
    if isinstance(condition, bool):
        return bool(value) is condition
    ((word, wanted),) = condition.items()
    if word in ("in", "not_in"):
        return (value in [_named(each, look) for each in wanted]) is (word == "in")
    if word in ("given", "has", "not_share"):
        return {
            "given": (value is not None) is wanted,
            "has": isinstance(value, str) and str(wanted) in value,
            "not_share": isinstance(value, (int, float)) and not 0 < value <= 1,
        }[word]
    return _compares(word, _number(value), _number(_named(wanted, look)))


def _compares(word: str, number: int | None, other: int | None) -> bool:
    if number is None or other is None:
        return False
    if word == "not_dividing":
        return number > 1 and other > 0 and other % number != 0
    return {"above": number > other, "below": number < other, "not_above": number <= other}[word]


def _named(wanted: Any, look: Look) -> Any:
    """Return a value itself, or that of the setting behind an ``@``; None for a length that the engine chooses."""
    if not (isinstance(wanted, str) and wanted.startswith("@")):
        return wanted
    value = _value(wanted[1:], look)
    return None if isinstance(value, int) and value < 1 else value


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    return value if isinstance(value, int) else None
