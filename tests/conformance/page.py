"""`docs/conformance.md`: every case, what the real engine and the simulated one answer, and why they differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.spec.load import PROJECT
from tests.conformance.differences import Reason, places
from tests.conformance.heard import PREFIX
from tests.conformance.subjects import VERSION

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / f"vllm-{VERSION}.json"
PAGE = PROJECT / "docs" / "conformance.md"
_WIDTH = 150
# Whether the core's process is known to have left when its failure is told, and with which code, is a race.
_CORES = re.compile(r"(?<=Failed core proc\(s\): )\{[^{}]*\}")

HEAD = f"""\
# Conformance

Written by `scripts/conformance`. One black-box suite is put to a released vLLM {VERSION} (a build for processors, with
real NIXL, installed by `scripts/install-cpu-engine`) and to the simulated engine of rehearsals. The real answers are
recorded in `tests/conformance/recorded/`; tests run the suite on the simulated engine, and fail where it differs from
them in anything that is not explained below, place by place of an answer, and where an explained difference is gone.
Every recording is of vLLM {VERSION}: no other release was put to it.

Ids, times, ports, addresses of objects and a model's words are not compared, and not how long a stream is: of events
in a row with the same shape one is kept. Status codes, shapes of documents, the order of a stream's different events,
error texts, the counts of tokens that an answer states (`usage`), exit codes and listening addresses are compared.
What an engine logs is not: it is kept, and production's own readers of logs and metrics are tried on it.

Two data-parallel ranks meet on processors, and then stop: vLLM has `all_gatherv` and `reduce_scatterv` for
accelerators alone. The cases named `group` and those of rank 1 of two lend it both, over gloo, as a plugin
(`tests/conformance/lent_collectives.py`); everything else of that group is the release's own.

`scripts/conformance --record` asks the real engine unit by unit; what the machine is too slow for it asks again at the
end, and stopped, it goes on where it was.
"""


def recorded() -> dict[str, Any]:
    """The real engine's answers, by case; with its logs."""
    answers: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return answers


def write_recorded(answers: Mapping[str, Any]) -> None:
    """Keep the real engine's answers."""
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    RECORDED.write_text(text, encoding="utf-8")


def compared(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers as they are compared: without logs, and without what two runs of one engine do not agree in."""
    kept = {name: answer for name, answer in answers.items() if not name.startswith(PREFIX)}
    plain: dict[str, Any] = json.loads(_CORES.sub("{…}", json.dumps(kept, ensure_ascii=False)))
    return plain


def page(real: Mapping[str, Any], simulated: Mapping[str, Any], why: Mapping[str, Reason]) -> str:
    """The document."""
    heard, played = compared(real), compared(simulated)
    differing = {
        name: at for name, answer in heard.items() if (at := places(answer, played.get(name)))
    }
    same = [name for name in heard if name not in differing]
    lines = [HEAD, f"{len(heard)} cases: {len(same)} alike, {len(differing)} differ.", ""]
    lines += ["## Where they differ", "", "| case | real | simulated | why |", "|---|---|---|---|"]
    for name, at in differing.items():
        reason = why[name].why if name in why and why[name].at == at else "**not explained**"
        lines.append(f"| {name} | {_cell(heard[name])} | {_cell(played.get(name))} | {reason} |")
    lines += ["", "## Where they are alike", "", "| case | both |", "|---|---|"]
    lines += [f"| {name} | {_cell(heard[name])} |" for name in same]
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
