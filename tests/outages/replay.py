"""What this project says of a configuration, by the functions that `fab check`, `preflight` and `verify` call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack
from infra.engines.transports import read_transports
from infra.errors import Problem, ProblemsFound, StackError
from infra.launch.preflight.observed import Disk, Holder, Told
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.launch.transport_verdicts import judge_collective
from infra.plan.compile import compile_file, compile_stack
from infra.plan.document import plan_document
from infra.plan.foreign.assumed import Told as ToldBeside
from infra.plan.imported import parse_plan
from infra.spec.load import load_stack
from tests.launch.preflight.scenes import change, healthy
from tests.outages.reports import HostFacts, Reproduction
from tests.plan.foreign.importing import judged as judged_recipe
from tests.plan_edits import apply_edits

CATALOG = Catalog()
NUM_INODES = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule, a check of a host or a verdict on a log says.

    Args:
        severity: `error`, `warning`, `pass`, or `unknown` for a log that says nothing of it.
        by: the rule or check.
        where: file, field or host.
    """

    severity: str
    by: str
    where: str
    what: str
    fix: str


def findings(reproduction: Reproduction, folder: Path) -> list[Finding]:
    """Everything that is found about a configuration.

    Args:
        reproduction: the configuration.
        folder: where a recipe may be written.
    """
    if reproduction.recipe is not None:
        return _of_recipe(reproduction, reproduction.recipe, folder)
    if reproduction.hosts:
        return _of_hosts(reproduction)
    if reproduction.log:
        return _of_log(reproduction.log)
    if reproduction.edits:
        return _of_plan(reproduction)
    return _of_stack(str(reproduction.stack), reproduction.set)


def findings_without(reproduction: Reproduction, folder: Path) -> list[Finding]:
    """Everything that is found about the same configuration without what went wrong in it."""
    if reproduction.recipe is not None:
        (text,) = _mended(reproduction, (reproduction.recipe,))
        return _of_recipe(reproduction, text, folder)
    if reproduction.hosts:
        return _judged(healthy(_name(reproduction), CATALOG, reproduction.set))
    if reproduction.log:
        return _of_log(_mended(reproduction, reproduction.log))
    return _of_stack(str(reproduction.stack), ())


def _mended(reproduction: Reproduction, texts: Sequence[str]) -> tuple[str, ...]:
    """A recipe, or the lines of a log, with every wrong text replaced."""
    for old in reproduction.mended:
        assert any(old in text for text in texts), f"{old} is not there"
    mended = []
    for text in texts:
        for old, new in reproduction.mended.items():
            text = text.replace(old, new)  # noqa: PLW2901 - one text after all replacements
        mended.append(text)
    return tuple(mended)


def _of_recipe(reproduction: Reproduction, text: str, folder: Path) -> list[Finding]:
    told = ToldBeside(**{str(key): value for key, value in reproduction.told.items()})
    judgement = judged_recipe(folder, text, reproduction.file, told)
    return _of_problems(judgement.problems)


def _of_problems(problems: Iterable[Problem]) -> list[Finding]:
    return [
        Finding(severity=p.severity, by=p.rule, where=p.where, what=p.what, fix=p.fix)
        for p in problems
    ]


def _of_stack(name: str, sets: Sequence[str]) -> list[Finding]:
    name, at, version = name.partition("@")
    try:
        stack = load_stack(name, (*((f"engine.version={version}",) if at else ()), *sets))
        plan = compile_stack(stack, catalog=CATALOG).plan
    except ProblemsFound as error:
        return _of_problems(error.problems)
    except StackError as error:
        where, what, fix = error.where, error.what, error.fix
        return [Finding(severity="error", by="cannot-compile", where=where, what=what, fix=fix)]
    return _of_problems(judge_stack(plan, stack, CATALOG))


def _of_plan(reproduction: Reproduction) -> list[Finding]:
    document = json.loads(_document(str(reproduction.stack), reproduction.set))
    apply_edits(document, reproduction.edits)
    problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    # `derived-field` says that a plan was edited by hand: here it always was
    return _of_problems(p for p in problems if p.rule != "derived-field")


@cache
def _document(stack: str, sets: tuple[str, ...]) -> str:
    name, at, version = stack.partition("@")
    words = (*((f"engine.version={version}",) if at else ()), *sets)
    return json.dumps(plan_document(compile_file(name, catalog=CATALOG, sets=words).plan))


def _of_hosts(reproduction: Reproduction) -> list[Finding]:
    scene = healthy(_name(reproduction), CATALOG, reproduction.set)
    for name, facts in reproduction.hosts.items():
        for host in scene.plan.hosts if name == "*" else [scene.plan.host(name)]:
            scene = _changed(scene, host.name, facts)
    return _judged(scene)


def _changed(scene: Scene, host: str, facts: HostFacts) -> Scene:
    now = scene.hosts[host]
    told = {
        command: Told(
            exit_code=facts.exit_code,
            stdout=text if facts.exit_code == 0 else "",
            stderr="" if facts.exit_code == 0 else text,
            seconds=0.1,
        )
        for command, text in facts.tells.items()
    }
    return change(
        scene,
        host,
        commands={**now.commands, **told},
        files={**now.files, **facts.files},
        paths=now.paths - set(facts.lacks),
        disks={**now.disks, **{path: _disk(path, n) for path, n in facts.free_bytes.items()}},
        items={**now.items, **{k: {"id": k, **row} for k, row in facts.items.items()}},
        listening=(*now.listening, *facts.listening),
        holders=(*now.holders, *(_holder(row) for row in facts.holders)),
    )


def _holder(row: dict[str, int | str]) -> Holder:
    return Holder(
        device=str(row["device"]),
        pid=int(row["pid"]),
        command=str(row["command"]),
        control_group="",
    )


def _disk(path: str, free_bytes: int) -> Disk:
    return Disk(
        mount=path,
        kind="ext4",
        exists=True,
        free_bytes=free_bytes,
        free_inodes=NUM_INODES,
        total_inodes=NUM_INODES,
        is_read_only=False,
        error=None,
    )


def _judged(scene: Scene) -> list[Finding]:
    names = {"block": "error", "warn": "warning", "pass": "pass"}
    return [
        Finding(
            severity=names[found.severity],
            by=found.check,
            where=found.host,
            what=found.observed,
            fix=found.fix,
        )
        for found in judge(replace(scene, depth="full"))
        if found.severity != "pass"
    ]


def _of_log(lines: Sequence[str]) -> list[Finding]:
    """What `fab verify` reads of one process's lines: the transport of its group's collectives."""
    verdict = judge_collective(read_transports(lines), "NCCL", over_nvlink=False)
    severity = {False: "error", None: "unknown", True: "pass"}[verdict.ok]
    detail = verdict.detail
    return [Finding(severity=severity, by="transport", where="log", what=detail, fix="")]


def _name(reproduction: Reproduction) -> str:
    assert reproduction.stack is not None
    return reproduction.stack
