"""`fab import`: somebody else's recipe read, shown as the processes that it would run, and judged."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from infra.catalog.load import Catalog
from infra.checks.foreign import Judgement, judge_recipe
from infra.errors import Problem, ProblemsFound, StackError
from infra.plan.compile import compile_file
from infra.plan.document import plan_document, process_document
from infra.plan.foreign.as_stack import Difference, differences, stack_fields
from infra.plan.foreign.assemble import stack_name
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import ImportedRecipe, import_recipe
from infra.plan.foreign.source import refused
from infra.render.import_report import ReportRow, import_listing, report_table
from infra.tasks.asked_files import refuse_over_inputs, write_asked
from infra.tasks.check import count_words, problem_document, problem_line, tone_of
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output

MAX_FILES = 5_000
_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".md", ".rst")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the operator says beside the file."""

    told: Told
    settings: Mapping[str, str]
    catalog: Catalog


def run(options: Options, output: Output) -> int:
    """Import one file, or lint every recipe of a folder; 0 when nothing refuses them, else 2."""
    path = Path(options.needed("file"))
    asked = _Asked(
        told=Told(
            engine=options.text("engine"),
            accelerator=options.text("accelerator"),
            checkpoint=options.text("checkpoint"),
        ),
        settings=_settings(options.words("set")),
        catalog=Catalog(),
    )
    outputs = {f"--{name}": options.text(name) for name in ("to-plan", "to-stack", "report")}
    refuse_over_inputs(outputs, (path,))
    if os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` raises for what cannot be looked at
        return _lint_folder(path, options, output, asked)
    if options.text("report") is not None:
        raise StackError("--report", f"{path} is no folder.", "Name a folder, or leave it out.")
    return _import_file(path, options, output, asked)


def _import_file(path: Path, options: Options, output: Output, asked: _Asked) -> int:
    try:
        recipe = import_recipe(path, asked.told, asked.settings, asked.catalog)
    except ProblemsFound as error:
        output.document(_refusal_document(path, error.problems))
        for problem in error.problems:
            output.data(output.toned(problem_line(problem), "bad"))
        return StackError.exit_code
    _refuse_many(recipe, options)
    judgement = judge_recipe(recipe, asked.catalog)
    plan_file = options.text("to-plan")
    if plan_file is not None:
        write_asked(
            "--to-plan", plan_file, json.dumps(plan_document(recipe.assembled.plan), indent=1)
        )
    is_ok = not any(problem.blocks for problem in judgement.problems)
    stack_file = options.text("to-stack")
    found = None if stack_file is None else _write_stack(recipe, stack_file, asked.catalog)
    document = _document(recipe, judgement, is_ok=is_ok)
    if found is not None:
        document["stack_file"] = stack_file
        document["differences"] = [asdict(row) for row in found]
    output.document(document)
    output.data(import_listing(recipe, judgement))
    if found is not None:
        output.data(f"the plan of {stack_file} differs in {len(found)} places")
        for row in found:
            output.data(f"  {row.role} {row.what}: {row.theirs} → {row.ours}")
        output.data("")
    for problem in judgement.problems:
        output.data(output.toned(problem_line(problem), tone_of(problem)))
    output.data(f"{path}: {count_words(judgement.problems)}.")
    if stack_file is not None:
        output.next_command(f"fab check --file {shlex.quote(stack_file)}")
    elif plan_file is not None:
        output.next_command(f"fab check --plan {shlex.quote(plan_file)}")
    else:
        output.next_command(f"fab import {shlex.quote(str(path))} --to-plan PLAN.json")
    return 0 if is_ok else StackError.exit_code


def _refuse_many(recipe: ImportedRecipe, options: Options) -> None:
    """Nothing, where one plan is read or none is written.

    Raises:
        StackError: a sweep, or variants, are many plans, and one of them is to be written.
    """
    for name in ("to-plan", "to-stack"):
        if recipe.others and options.text(name) is not None:
            what = f"The file holds {len(recipe.others) + 1} deployments."
            chosen = " ".join(f"--set {name}={value}" for name, value in recipe.choice.items())
            raise StackError(f"--{name}", what, f"Choose one: {chosen}.")


def _write_stack(recipe: ImportedRecipe, file: str, catalog: Catalog) -> tuple[Difference, ...]:
    """Write the recipe as a stack file; what the stack's plan has otherwise.

    Raises:
        StackError: it cannot be a stack; then no file is left behind.
    """
    fields = stack_fields(recipe, catalog)
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=120)
    if os.path.lexists(file):
        raise StackError(f"--to-stack {file}", "The file is there already.", "Name another.")
    write_asked("--to-stack", file, text)
    try:
        compiled = compile_file(file, catalog=catalog)
    except StackError as error:
        Path(file).unlink()
        what = f"It cannot be expressed as a stack: {error.what}"
        raise StackError(f"--to-stack {error.where}", what, error.fix) from error
    return differences(recipe, compiled.plan, catalog)


def _document(recipe: ImportedRecipe, judgement: Judgement, *, is_ok: bool) -> dict[str, object]:
    """The document of `fab import`."""
    plan = recipe.assembled.plan
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "ok": is_ok,
        "format": recipe.format,
        "engine": {"name": plan.engine.name, "version": plan.engine.version},
        "problems": [problem_document(problem) for problem in judgement.problems],
        "processes": [process_document(process) for process in plan.processes],
        "not_understood": [
            {"line": row.line, "text": row.text, "why": row.why} for row in recipe.not_understood
        ],
        "assumed": [
            {"what": note.what, "value": note.value, "why": note.why, "line": note.line}
            for note in recipe.facts.assumptions
        ],
        "not_judged": [
            {"because": row.because, "rules": list(row.rules)} for row in judgement.not_judged
        ],
    }
    if recipe.others:
        document |= {"combination": dict(recipe.choice), "combinations": 1 + len(recipe.others)}
    return document


def _refusal_document(path: Path, problems: tuple[Problem, ...]) -> dict[str, object]:
    """The document of a file that is not read."""
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": stack_name(path.stem),
        "ok": False,
        "problems": [problem_document(problem) for problem in problems],
        "processes": [],
        "not_understood": [],
        "assumed": [],
        "not_judged": [],
    }


def _lint_folder(path: Path, options: Options, output: Output, asked: _Asked) -> int:
    """Every recipe under a folder, judged; the table goes to `--report`."""
    for name in ("to-stack", "to-plan"):
        if options.text(name) is not None:
            raise StackError(f"--{name}", f"{path} is a folder.", "Name one file.")
    refuse_over_inputs({"--report": options.text("report")}, _files(path)[0])
    rows = list(_rows(path, asked))
    problems = [problem for row in rows for problem in row.problems]
    is_ok = not any(problem.blocks for problem in problems)
    report = options.text("report")
    if report is not None:
        write_asked("--report", report, report_table(path.name, rows))
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": path.name,
            "ok": is_ok,
            "problems": [problem_document(problem) for problem in problems],
            "processes": [],
            "not_understood": [],
            "recipes": [_row_document(row) for row in rows],
        }
    )
    for row in rows:
        output.data(f"{row.verdict:<8}  {row.file}  {row.refusal}".rstrip())
        for problem in row.problems:
            if problem.severity == "error" and not row.refusal:
                output.data(output.toned(f"  {problem_line(problem)}", "bad"))
    not_read = sum(bool(row.refusal) for row in rows)
    read = f"{len(rows)} recipes, {not_read} not read" if not_read else f"{len(rows)} recipes"
    output.data(f"{path}: {read}, {count_words(problems)}.")
    if report is None:
        output.next_command(f"fab import {shlex.quote(str(path))} --report TABLE.md")
    return 0 if is_ok else StackError.exit_code


def _rows(folder: Path, asked: _Asked) -> Iterator[ReportRow]:
    """A row per recipe, and per file or folder that is not read; files that start no engine at all are passed over."""
    paths, closed = _files(folder)
    for error in closed:
        shown = os.path.relpath(error.filename, folder)
        what = f"The folder cannot be read: {error.strerror}."
        yield _refused_row(
            shown, refused(error.filename, what, "Make it readable, or leave it out.")
        )
    for path in paths:
        shown = str(path.relative_to(folder))
        try:
            recipe = import_recipe(path, asked.told, asked.settings, asked.catalog)
        except ProblemsFound as error:
            rule = error.problems[0].rule
            if rule == "engine-not-read":  # nothing is wrong with the file
                error = ProblemsFound(tuple(replace(p, severity="warning") for p in error.problems))
            if rule != "no-engine":
                yield _refused_row(shown, error)
            continue
        judgement = judge_recipe(recipe, asked.catalog)
        engine = recipe.assembled.plan.engine
        known = "" if "release" not in recipe.facts.unknown else "?"
        yield ReportRow(
            file=shown,
            format=recipe.format,
            engine=f"{engine.name} {engine.version}{known}",
            num_processes=len(recipe.assembled.plan.processes),
            num_not_understood=len(recipe.not_understood),
            num_not_judged=len({rule for row in judgement.not_judged for rule in row.rules}),
            problems=judgement.problems,
        )


def _refused_row(shown: str, error: ProblemsFound) -> ReportRow:
    problem = error.problems[0]
    return ReportRow(
        file=shown,
        format="",
        engine="",
        num_processes=0,
        num_not_understood=0,
        num_not_judged=0,
        problems=error.problems,
        refusal=problem.what if problem.line is None else f"line {problem.line}: {problem.what}",
    )


def _files(folder: Path) -> tuple[list[Path], list[OSError]]:
    """Files of a tree that may be recipes, sorted, and its folders that cannot be read; links are not followed.

    Raises:
        StackError: there are more than `MAX_FILES`.
    """
    found: list[Path] = []
    closed: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(parent, name) for name in names if name.lower().endswith(_SUFFIXES)]
        # a pipe among them would be waited for
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(found) > MAX_FILES:
            what = f"There are more than {MAX_FILES} files."
            raise StackError(str(folder), what, "Name a smaller folder.")
    return sorted(found), closed


def _row_document(row: ReportRow) -> dict[str, object]:
    return {
        "file": row.file,
        "format": row.format,
        "engine": row.engine,
        "processes": row.num_processes,
        "not_understood": row.num_not_understood,
        "not_judged": row.num_not_judged,
        "errors": row.num_errors,
        "warnings": len(row.problems) - row.num_errors,
        "verdict": row.verdict,
        "refusal": row.refusal,
    }


def _settings(words: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` words.

    Raises:
        StackError: a word is none.
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*|\d+", name):
            fix = "Write --set NAME=VALUE; a script's own arguments are --set 1=VALUE."
            raise StackError("--set", f"{word!r} sets nothing.", fix)
        found[name] = value
    return found
