"""`docs/conformance.md`: every case, what the real engine and the simulated one answer, and why they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.spec.load import PROJECT
from tests.conformance.subjects import VERSION

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / f"vllm-{VERSION}.json"
DIFFERENCES = HERE / "differences.yaml"
UNRECORDED = HERE / "unrecorded.yaml"
PAGE = PROJECT / "docs" / "conformance.md"
_WIDTH = 150

HEAD = f"""\
# Conformance

Written by `scripts/conformance`. One black-box suite is put to a released vLLM {VERSION} (a build for processors, with
real NIXL, installed by `scripts/install-cpu-engine`) and to the simulated engine of rehearsals. The real answers are
recorded in `tests/conformance/recorded/`; tests run the suite on the simulated engine, and fail where it differs from
them in anything that is not explained below. Every recording is of vLLM {VERSION}: no other release was put to it.

Ids, times, ports, addresses of objects and a model's words are not compared, and not how long a stream is: of events
in a row with the same shape one is kept. Status codes, shapes of documents, the order of a stream's different events,
error texts, the counts of tokens that an answer states (`usage`), exit codes and listening addresses are compared.
"""


def recorded() -> dict[str, Any]:
    """The real engine's answers, by case."""
    answers: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return answers


def write_recorded(answers: Mapping[str, Any]) -> None:
    """Keep the real engine's answers."""
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    RECORDED.write_text(text, encoding="utf-8")


def explained() -> dict[str, str]:
    """Why the simulated engine differs, by case."""
    return _reasons(DIFFERENCES)


def unrecorded() -> dict[str, str]:
    """Why what was recorded is no answer of the engine, by case."""
    return _reasons(UNRECORDED)


def _reasons(path: Path) -> dict[str, str]:
    rows = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {str(name): str(why) for name, why in rows.items()}


def page(real: Mapping[str, Any], simulated: Mapping[str, Any], why: Mapping[str, str]) -> str:
    """The document."""
    without = unrecorded()
    heard = [name for name in real if name not in without]
    same = [name for name in heard if simulated.get(name) == real[name]]
    other = [name for name in heard if name not in same]
    counts = f"{len(same)} alike, {len(other)} differ, {len(without)} not recorded"
    lines = [HEAD, f"{len(real)} cases: {counts}.", ""]
    lines += ["## Where they differ", "", "| case | real | simulated | why |", "|---|---|---|---|"]
    for name in other:
        reason = why.get(name, "**not explained**")
        lines.append(f"| {name} | {_cell(real[name])} | {_cell(simulated.get(name))} | {reason} |")
    lines += ["", "## Not recorded", ""]
    lines += [
        "The machine was too slow for the real engine: the simulated one is compared with nothing.",
        "",
    ]
    lines += ["| case | simulated | why there is no recording |", "|---|---|---|"]
    lines += [f"| {name} | {_cell(simulated.get(name))} | {why} |" for name, why in without.items()]
    lines += ["", "## Where they are alike", "", "| case | both |", "|---|---|"]
    lines += [f"| {name} | {_cell(real[name])} |" for name in same]
    return "\n".join(lines) + "\n"


def _cell(answer: Any) -> str:
    text = " ".join(summary(answer).split())
    # at the end of a word: half a word is taken for a misspelt one
    short = text if len(text) <= _WIDTH else text[:_WIDTH].rpartition(" ")[0] + " …"
    return short.replace("|", "\\|").replace("<", "&lt;")


def summary(answer: Any) -> str:
    """An answer in one line."""
    if not isinstance(answer, dict):
        return json.dumps(answer, ensure_ascii=False)
    if "failed" in answer:
        return str(answer["failed"])
    if "exit" in answer and set(answer) == {"exit", "error"}:
        return f"exit {answer['exit']}: {answer['error']}"
    if "status" in answer:
        return f"{answer['status']} {_body(answer.get('body'))}"
    return ", ".join(f"{key}: {_plain(value)}" for key, value in answer.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _body(body: Any) -> str:
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = body["error"]
        return f"{error.get('type')}: {error.get('message')}"
    return json.dumps(body, ensure_ascii=False) if body not in ("", None) else ""
