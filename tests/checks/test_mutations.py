"""Commands damaged systematically: what the simulated engine's configuration refuses, `fab check` refuses before.

Nobody classifies by hand. A mutant is harmful when the configuration code of the simulated engine, which is tested
against the real engines' verdicts, raises. The report of what is missed is `docs/mutations.md`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan
from infra.errors import InfraError
from infra.packages.verdicts.damage import Mutant, mutants
from infra.packages.verdicts.questions import kinds_of_processes
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.plan.process import Plan, Process
from infra.rehearsal.engine.failures import Failed, Refused
from infra.spec.load import PROJECT
from tests.rehearsal.engine.shipped import configured, engine_world, write_checkpoints

CATALOG = Catalog()
# the shipped stacks, and modes that none of them uses
FURTHER = (
    "ascend-dcp",
    "sglang-dp-attention-2n",
    "sglang-pd-nixl",
    "vllm-hybrid-2n",
    "vllm-internal-2n",
    "vllm-multi-port",
)
# its commands are those of the stack that it extends (tests/inventory/test_pods.py): the mutants would be, too
SAME = ("eks-b200-tp8.yaml",)
STACKS = (
    *sorted(
        path
        for path in (PROJECT / "stacks").glob("*.yaml")
        if not path.name.startswith("Pulumi") and path.name not in SAME
    ),
    *(PROJECT / "tests" / "stacks" / f"{name}.yaml" for name in FURTHER),
)
REPORT = PROJECT / "docs" / "mutations.md"
GOAL = 0.97
HEAD = """\
# Mutations

Written by `pytest tests/checks/test_mutations.py --update-golden`; a slow test keeps it current. Engine commands of the
shipped stacks, and of a few for modes that these do not use, are damaged in one place at a time. A mutant is harmful
when the configuration code of the simulated engine raises; `fab check` should refuse it before. What a handshake or the
network would notice later is not counted.

What is missed and why: whether a checkpoint lies at a path is for `fab preflight` to see; which attention back end an
AMD device gets with an FP8 KV cache depends on kernels in the image.

"""


@pytest.mark.slow  # some ten thousand commands are configured and judged
def test_nearly_every_harmful_mutant_is_refused(tmp_path: Path, *, update_golden: bool) -> None:
    counts: Counter[str] = Counter()
    missed: list[str] = []
    for path in STACKS:
        plan = compile_file(str(path), catalog=CATALOG).plan
        document, folder = json.dumps(plan_document(plan)), tmp_path / path.stem
        write_checkpoints(plan, CATALOG, folder)
        for process, mutant in _mutants_of(plan):
            counts["mutants"] += 1
            verdict = _engine_refuses(plan, process, mutant, folder)
            if verdict is None:
                continue
            counts["harmful"] += 1
            if not _is_refused(document, process, mutant):
                counts["missed"] += 1
                missed.append(f"| `{path.stem}` | {process.id} | {mutant.change} | {verdict} |")
    report = HEAD + _table(counts, missed)
    if update_golden:
        REPORT.write_text(report, encoding="utf-8")
    assert counts["harmful"] > 1000
    assert 1 - counts["missed"] / counts["harmful"] >= GOAL, "\n".join(missed)
    assert REPORT.read_text(encoding="utf-8") == report, (
        "run with --update-golden, then read the diff"
    )


def _mutants_of(plan: Plan) -> Iterator[tuple[Process, Mutant]]:
    """Mutants of one engine process of each kind: leaders, followers and headless ones of every role."""
    for process in kinds_of_processes(plan):
        if process.kind == "engine":
            for mutant in mutants(process.argv, process.env):
                yield process, mutant


def _engine_refuses(plan: Plan, process: Process, mutant: Mutant, folder: Path) -> str | None:
    """Why the simulated engine does not start, in one line; None when its configuration is built."""
    mutated = replace(process, argv=mutant.argv, env=mutant.env)
    try:
        configured(plan, mutated, engine_world(plan, mutated, CATALOG, folder), folder)
    except (Failed, Refused) as failure:
        text = failure.text if isinstance(failure, Refused) else failure.message
        return _one_line(text, folder)
    except ZeroDivisionError:
        return "division by zero"
    return None


def _is_refused(text: str, process: Process, mutant: Mutant) -> bool:
    document = json.loads(text)
    row = next(row for row in document["processes"] if row["id"] == process.id)
    row["argv"], row["env"] = list(mutant.argv), dict(mutant.env)
    try:
        problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    except InfraError:
        return True
    return any(problem.blocks for problem in problems)


def _one_line(text: str, folder: Path) -> str:
    words = " ".join(text.replace(str(folder), "/models").split()).replace("|", "\\|")
    return words[:160]


def _table(counts: Counter[str], missed: list[str]) -> str:
    share = 100 * (1 - counts["missed"] / max(counts["harmful"], 1))
    numbers = f"{counts['mutants']} mutants, {counts['harmful']} harmful, {counts['missed']} missed"
    sums = f"{numbers}: {share:.1f} % refused.\n"
    head = "\n| stack | process | change | the engine says |\n|---|---|---|---|\n"
    return sums + head + "".join(f"{row}\n" for row in missed)
