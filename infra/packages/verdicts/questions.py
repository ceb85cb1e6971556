"""Which commands the released packages are asked about: every process of every stack, and damaged ones."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.catalog.load import Catalog
from infra.packages.verdicts.damage import STRANGERS, mutants
from infra.plan.compile import compile_file
from infra.plan.process import Plan, Process
from infra.spec.load import SEARCHED

# Of one flag damaged in one way, so many commands of a release are in the sample; of other values a few more.
_PER_KIND = 1
_MORE_OF = {"value": 2, "key": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A command line that a released package is asked about.

    Args:
        package: the package that answers, as the registry names it.
        stack: the stack's name.
        process: the process's id in its plan.
        change: the damage, in words; empty for a command as it is shipped.
        subject: the flag or variable that is damaged; empty likewise.
        kind: the kind of damage; empty likewise.
        weights_path: the folder in which the command expects checkpoints.
    """

    package: str
    version: str
    stack: str
    process: str
    change: str
    subject: str
    kind: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    accelerator: str
    num_devices: int
    weights_path: str

    @property
    def release(self) -> str:
        """The package and its version, as files and tables name them."""
        return f"{self.package}-{self.version}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What names a question among those to one release."""
        return (self.stack, self.process, self.change)

    @property
    def digest(self) -> str:
        """Changes with the command, its environment and its host: a verdict is about all of them."""
        asked = [self.argv, sorted(self.env.items()), self.accelerator, self.num_devices]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def stack_files() -> tuple[Path, ...]:
    """Every stack file, shipped ones before those of the tests, by name."""
    return tuple(
        path
        for folder in SEARCHED
        for path in sorted(folder.glob("*.yaml"))
        if not path.name.startswith("Pulumi")
    )


def compiled_plans(catalog: Catalog, names: Iterable[str] = ()) -> Iterator[tuple[str, Plan]]:
    """(stack, plan) of every stack, or of those that are named.

    Raises:
        ProblemsFound: a stack cannot be compiled.
    """
    wanted = frozenset(names)
    for path in stack_files():
        if not wanted or path.stem in wanted:
            yield path.stem, compile_file(str(path), catalog=catalog).plan


def shipped_questions(stack: str, plan: Plan, catalog: Catalog) -> Iterator[Question]:
    """Every process of a plan whose program is in a package of a registry."""
    for process in plan.processes:
        question = _question(stack, plan, process, catalog)
        if question is not None:
            yield question


def broken_questions(stack: str, plan: Plan, catalog: Catalog) -> Iterator[Question]:
    """Every damaged command of one process of each kind."""
    for process in kinds_of_processes(plan):
        whole = _question(stack, plan, process, catalog)
        if whole is None:
            continue
        strangers = STRANGERS if process.kind == "engine" else ()
        seen: set[str] = set()
        for mutant in mutants(process.argv, process.env, strangers):
            if mutant.change in seen:  # a flag that is given twice is damaged alike twice
                continue
            seen.add(mutant.change)
            yield replace(
                whole,
                change=mutant.change,
                subject=mutant.subject,
                kind=mutant.kind,
                argv=mutant.argv,
                env=mutant.env,
            )


def sample(questions: Iterable[Question]) -> tuple[Question, ...]:
    """A part of the damaged commands, the same in every run, spread over releases, flags and kinds of damage."""
    taken: Counter[object] = Counter()
    found = []
    for question in sorted(questions, key=lambda question: (question.digest, question.key)):
        group = (question.release, question.subject, question.kind)
        if taken[group] < _MORE_OF.get(question.kind, _PER_KIND):
            taken[group] += 1
            found.append(question)
    return tuple(sorted(found, key=lambda question: (question.release, question.key)))


def thin_sample(questions: Iterable[Question]) -> tuple[Question, ...]:
    """One damaged command of each flag and variable of a release, of whatever kind; the same in every run."""
    found: dict[object, Question] = {}
    for question in sorted(questions, key=lambda question: (question.digest, question.key)):
        found.setdefault((question.release, question.subject), question)
    return tuple(sorted(found.values(), key=lambda question: (question.release, question.key)))


def named_checkpoints(questions: Iterable[Question], catalog: Catalog) -> tuple[str, ...]:
    """The checkpoints of the catalogue that any of these commands names by their folder."""
    words = {(question.weights_path, word) for question in questions for word in question.argv}
    return tuple(
        name
        for name in catalog.ids("checkpoints")
        if any(f"{folder}/{name}/" in word for folder, word in words)
    )


def kinds_of_processes(plan: Plan) -> Iterator[Process]:
    """One process of each kind: leaders, followers and headless ones of every role, and the router."""
    seen: set[object] = set()
    for process in plan.processes:
        kind = (process.kind, process.role, 0 in process.dp_ranks, process.endpoint is None)
        if kind not in seen:
            seen.add(kind)
            yield process


def _question(stack: str, plan: Plan, process: Process, catalog: Catalog) -> Question | None:
    """The command as it is shipped; None for a program that no registry has as a package, or that runs for real.

    What needs no accelerator is run by `fab rehearse` with the engine itself.
    """
    answers = _answering_package(plan, process, catalog)
    host = plan.host(process.host)
    runs_for_real = catalog.accelerator(host.accelerator).vendor == "cpu"
    if answers is None or (process.kind == "engine" and runs_for_real):
        return None
    return Question(
        package=answers[0],
        version=answers[1],
        stack=stack,
        process=process.id,
        change="",
        subject="",
        kind="",
        argv=process.argv,
        env=process.env,
        accelerator=host.accelerator,
        num_devices=host.num_devices,
        weights_path=plan.weights_path,
    )


def _answering_package(plan: Plan, process: Process, catalog: Catalog) -> tuple[str, str] | None:
    if process.kind == "engine":
        return plan.engine.name, plan.engine.version
    router = catalog.router_of(process.argv)
    package, _, version = (router.package or "" if router else "").partition("==")
    return (package, version) if version else None
