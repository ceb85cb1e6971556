"""Lines of a file that name an engine's program: where to look when nothing in it was understood to start one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.errors import ProblemsFound
from infra.plan.foreign.source import refused

_PROGRAM = re.compile(
    r"vllm serve\b|vllm\.entrypoints\.openai\.api_server|sglang serve\b|sglang\.launch_server|dynamo\.(?:vllm|sglang)\b"
)
# Servers of models that no room here speaks for, by the words that start them.
_OTHER = re.compile(
    r"(?<![\w./-])(?:trtllm-serve|mpirun .*trtllm-llmapi-launch|tritonserver|text-generation-launcher|lmdeploy serve"
    r"|llama-server|mlc_llm serve|aphrodite run|ktransformers|mindieservice_daemon)(?![\w-])"
    r"|dynamo\.(?:trtllm|mocker)\b|tensorrt_llm\.(?:commands|serve)\b|lmdeploy\.serve\b"
)
_SHOWN = 3
NOT_FOLLOWED = (
    "Save that command as it is run, with the variables that it uses, as a shell script of its own."
)


@dataclass(frozen=True, slots=True)
class Mentions:
    """The lines that name an engine's program.

    Args:
        line: the first of them, from 1.
        said: a sentence about all of them.
    """

    line: int
    said: str


def engine_mentions(text: str) -> Mentions | None:
    """The lines of a file that name a program and are no comment; None where there is none."""
    found = list(_rows_with(_PROGRAM, text))
    if not found:
        return None
    numbers = [str(number) for number, _ in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    lines = f"line{'s' * (len(found) > 1)} {', '.join(numbers)}{more}"
    said = f"`{found[0][1]}` stands on {lines}, in what is not followed."
    return Mentions(found[0][0], said)


def other_engine(text: str) -> tuple[int, str] | None:
    """(line, program) of the first engine that is not read here; None where no line starts one."""
    return next(_rows_with(_OTHER, text), None)


def engine_not_read(path: Path, line: int, program: str) -> ProblemsFound:
    """A recipe for an engine that is not read here."""
    what = f"Engine not read here: {program}."
    fix = "Only the files of vLLM, vllm-ascend and SGLang are read; leave this one out."
    return refused(path, what, fix, line, rule="engine-not-read")


def _rows_with(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(text.splitlines(), start=1):
        match = pattern.search(row)
        if match and not row.lstrip().startswith(("#", "//")):
            yield number, match[0]
