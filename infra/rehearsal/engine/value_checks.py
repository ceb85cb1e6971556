"""Values that argparse lets through and pydantic refuses, in its words (recorded from vllm 0.22.1)."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from .command_line import Arguments
from .failures import PYDANTIC_HELP, VALIDATION_ERROR, Failed, assertion, invalid

EXECUTORS = ("ray", "mp", "uni", "external_launcher")
DEFAULT_CONTEXT_TOKENS = 8192
MOST = "less_than_equal"
# Counts from one beside those of batches, as far as the release has the flag (config/scheduler.py@0.17.0 to 0.33.0).
COUNTS = (
    "max_num_partial_prefills",
    "max_long_partial_prefills",
    "max_num_scheduled_tokens",
    "max_num_active_seqs",
    "prefill_schedule_interval",
    "stream_interval",
)
LEVELS = ("0", "1", "2", "3")


class Wrong(NamedTuple):
    """One line of pydantic's report: where, what, by which name."""

    place: str
    text: str
    kind: str
    value: Any


def wrong_values(class_name: str, rows: list[Wrong]) -> Failed:
    """Return the failure of a configuration class whose values are wrong."""
    noun = "validation error" if len(rows) == 1 else "validation errors"
    lines = [f"{len(rows)} {noun} for {class_name}"]
    for row in rows:
        kind = type(row.value).__name__
        told = f"[type={row.kind}, input_value={row.value!r}, input_type={kind}]"
        help_line = f"    For further information visit {PYDANTIC_HELP}{row.kind}"
        lines += [row.place, f"  {row.text} {told}", help_line]
    return Failed(VALIDATION_ERROR, "\n".join(lines))


def check_configuration_file(argv: list[str]) -> None:
    """Look for the file that ``--config`` names.

    Raises:
        Failed: Python's own error; the flags of a file that is there are not simulated.
    """
    for index, word in enumerate(argv):
        match = re.match(r"^--config(?:=(.+))?$", word)
        if match is None:
            continue
        path = match[1] or (argv[index + 1] if index + 1 < len(argv) else "")
        if not os.path.isfile(path):
            reason = f"[Errno 2] No such file or directory: '{path}'"
            raise Failed("FileNotFoundError", reason, process="")
        raise Failed("moe-infra rehearsal", f"--config {path}: not simulated", process="")


def check_model_values(args: Arguments) -> None:
    """ModelConfig's own.

    Raises:
        Failed: pydantic's report.
    """
    overrides = args["hf_overrides"]
    if overrides is not None and not isinstance(overrides, dict):
        raise wrong_values(
            "ModelConfig",
            [
                Wrong(
                    "hf_overrides.dict[str,any]",
                    "Input should be a valid dictionary",
                    "dict_type",
                    overrides,
                ),
                Wrong(
                    "hf_overrides.callable", "Input should be callable", "callable_type", overrides
                ),
            ],
        )
    limits = args["limit_mm_per_prompt"]
    for name, value in (limits if isinstance(limits, dict) else {}).items():
        if isinstance(value, str) and not value.isdigit():
            place = f"limit_mm_per_prompt.{name}"
            said = "Input should be a valid integer, unable to parse string as an integer"
            raise wrong_values(
                "ModelConfig",
                [
                    Wrong(f"{place}.int", said, "int_parsing", value),
                    Wrong(
                        f"{place}.dict[str,int]",
                        "Input should be a valid dictionary",
                        "dict_type",
                        value,
                    ),
                ],
            )


def check_optimisation(args: Arguments) -> None:
    """VllmConfig's level.

    Raises:
        Failed: pydantic's report.
    """
    level = args["optimization_level"]
    if level is not None and str(level) not in LEVELS:
        said = "Input should be 0, 1, 2 or 3"
        raise wrong_values("VllmConfig", [Wrong("optimization_level", said, "enum", str(level))])


def check_executor(args: Arguments) -> None:
    """What is no word of vLLM's own is the path of a class.

    Raises:
        Failed: it has no dot.
    """
    backend = args["distributed_executor_backend"]
    if backend is not None and backend not in EXECUTORS and "." not in backend:
        raise invalid("VllmConfig", "not enough values to unpack (expected 2, got 1)")


def check_graph_sizes(args: Arguments) -> None:
    """Graphs are captured of at least one size.

    Raises:
        Failed: vLLM's own assertion.
    """
    config = args["compilation_config"]
    if isinstance(config, dict) and config.get("cudagraph_capture_sizes") == []:
        raise assertion(
            "cudagraph_capture_sizes should contain at least one element when using cuda graph."
        )


def check_draft_tokens(tokens: object) -> None:
    """SpeculativeConfig's bound.

    Raises:
        Failed: pydantic's report.
    """
    if isinstance(tokens, int) and tokens < 1:
        row = Wrong(
            "num_speculative_tokens", "Input should be greater than 0", "greater_than", tokens
        )
        raise wrong_values("SpeculativeConfig", [row])


def check_memory_share(args: Arguments) -> None:
    """CacheConfig's bounds.

    Raises:
        Failed: pydantic's report.
    """
    share = float(args["gpu_memory_utilization"])
    if 0 < share <= 1:
        return
    kind, bound = (
        ("greater_than", "greater than 0") if share <= 0 else (MOST, "less than or equal to 1")
    )
    row = Wrong("gpu_memory_utilization", f"Input should be {bound}", kind, share)
    raise wrong_values("CacheConfig", [row])


def check_contexts(args: Arguments, version: tuple[int, ...]) -> None:
    """A size of zero: ParallelConfig divides by it before 0.23.0, and bounds it since.

    Raises:
        Failed: the division's error, or pydantic's report.
    """
    if args["decode_context_parallel_size"] != 0:
        return
    if version < (0, 23):
        raise Failed("ZeroDivisionError", "integer modulo by zero")
    said = "Input should be greater than or equal to 1"
    row = Wrong("decode_context_parallel_size", said, "greater_than_equal", 0)
    raise wrong_values("ParallelConfig", [row])


def _check_counts(counts: dict[str, int | None]) -> None:
    rows = [
        Wrong(name, "Input should be greater than or equal to 1", "greater_than_equal", count)
        for name, count in counts.items()
        if count is not None and count < 1
    ]
    if rows:
        raise wrong_values("SchedulerConfig", rows)


def check_batches(args: Arguments, max_model_len: int) -> None:
    """SchedulerConfig: a batch holds what it must.

    Raises:
        Failed: pydantic's report, or the validator's own words.
    """
    sequences, tokens = args["max_num_seqs"], args["max_num_batched_tokens"]
    is_chunked = args["enable_chunked_prefill"] is not False
    if tokens is None:
        tokens = (
            DEFAULT_CONTEXT_TOKENS if is_chunked else max(max_model_len, DEFAULT_CONTEXT_TOKENS)
        )
        tokens = max(tokens, sequences or 0)
    if sequences is not None and args["max_num_batched_tokens"] is None:
        tokens = min(
            tokens, sequences * max_model_len
        )  # arg_utils.py: no batch is larger than all requests
    others = {name: args[name] for name in COUNTS}
    _check_counts({"max_num_batched_tokens": tokens, "max_num_seqs": sequences, **others})
    if not is_chunked and tokens < max_model_len:
        raise invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({max_model_len}). This "
            "effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM "
            "reject longer sequences. Please increase max_num_batched_tokens or decrease max_model_len.",
        )
    if sequences is not None and tokens < sequences:
        raise invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
            f"({sequences}).",
        )
