"""What this project says of a configuration, by the functions that `fab check`, `preflight` and `verify` call."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack
from infra.engines.transports import read_transports
from infra.errors import ProblemsFound, StackError
from infra.launch.preflight.observed import Holder, Told
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.launch.proof.transport import judge_collective
from infra.plan.compile import compile_file, compile_stack
from infra.plan.document import plan_document
from infra.plan.foreign.assumed import Told as ToldBeside
from infra.plan.imported import parse_plan
from infra.spec.load import load_stack
from tests.launch.preflight.scenes import change, healthy
from tests.outages.reports import Edit, HostFacts, Reproduction
from tests.plan.foreign.importing import judged as judged_recipe

CATALOG = Catalog()
Finding = tuple[str, str, str]
"""(severity, rule or check, what it says)"""


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
    return [(p.severity, p.rule, p.what) for p in judgement.problems]


def _of_stack(name: str, sets: Sequence[str]) -> list[Finding]:
    name, at, version = name.partition("@")
    try:
        stack = load_stack(name, (*((f"engine.version={version}",) if at else ()), *sets))
        plan = compile_stack(stack, catalog=CATALOG).plan
    except ProblemsFound as error:
        return [(p.severity, p.rule, p.what) for p in error.problems]
    except StackError as error:
        return [("error", "cannot-compile", error.what)]
    return [(p.severity, p.rule, p.what) for p in judge_stack(plan, stack, CATALOG)]


def _of_plan(reproduction: Reproduction) -> list[Finding]:
    document = copy.deepcopy(json.loads(_document(str(reproduction.stack), reproduction.set)))
    for edit in reproduction.edits:
        _apply(document, edit)
    problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    # `derived-field` says that a plan was edited by hand: here it always was
    return [(p.severity, p.rule, p.what) for p in problems if p.rule != "derived-field"]


@cache
def _document(stack: str, sets: tuple[str, ...]) -> str:
    name, at, version = stack.partition("@")
    words = (*((f"engine.version={version}",) if at else ()), *sets)
    return json.dumps(plan_document(compile_file(name, catalog=CATALOG, sets=words).plan))


def _apply(document: dict[str, Any], edit: Edit) -> None:
    rows = list(_meant(document, edit.process))
    assert rows, f"the plan has no process {edit.process}"
    for row in rows:
        if edit.flag is not None:
            _set_flag(row["argv"], edit.flag, edit.value)
        elif edit.env is not None:
            row["env"].pop(edit.env, None)
            if edit.value is not None:
                row["env"][edit.env] = edit.value
        else:
            row["mounts"] = []


def _meant(document: dict[str, Any], process: str) -> Iterator[dict[str, Any]]:
    role, _, name = process.partition("/")
    for row in document["processes"]:
        if row["id"] == process or (name == "*" and row["role"] == role):
            yield row


def _set_flag(argv: list[str], flag: str, value: str | dict[str, object] | None) -> None:
    """Another value of a flag; None removes it, a map replaces keys of its JSON, "" is a switch."""
    written: str | None = None
    if flag in argv:
        start = argv.index(flag)
        end = start + 1
        while end < len(argv) and not argv[end].startswith("--"):
            end += 1
        written = " ".join(argv[start + 1 : end])
        argv[start:end] = []
    if isinstance(value, dict):
        value = json.dumps({**json.loads(written or "{}"), **value})
    if value is not None:
        argv += [flag, value] if value else [flag]


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


def _judged(scene: Scene) -> list[Finding]:
    names = {"block": "error", "warn": "warning", "pass": "pass"}
    return [
        (names[found.severity], found.check, found.observed)
        for found in judge(replace(scene, depth="full"))
        if found.severity != "pass"
    ]


def _of_log(lines: Sequence[str]) -> list[Finding]:
    """What `fab verify` reads of one process's lines: the transport of its group's collectives."""
    verdict = judge_collective(read_transports(lines), "NCCL", over_nvlink=False)
    severity = {False: "error", None: "unknown", True: "pass"}[verdict.ok]
    return [(severity, "transport", verdict.detail)]


def _name(reproduction: Reproduction) -> str:
    assert reproduction.stack is not None
    return reproduction.stack
