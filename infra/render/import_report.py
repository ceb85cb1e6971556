"""What was imported, for people: one recipe's assumptions and gaps, or a table of a whole tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from infra.checks.foreign import Judgement
from infra.errors import Problem
from infra.plan.foreign.imported_recipe import ImportedRecipe
from infra.plan.foreign.source import NotUnderstood
from infra.render.plan_listing import plan_listing

_UNKNOWN = "unknown accelerator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One file of a tree.

    Args:
        format: empty for a file that was not read.
        num_not_judged: rules that lacked something.
        problems: of one that was not read, why.
        refusal: the first of these in words, empty for one that was read.
    """

    file: str
    format: str
    engine: str
    num_processes: int
    num_not_understood: int
    num_not_judged: int
    problems: tuple[Problem, ...]
    refusal: str = ""

    @property
    def num_errors(self) -> int:
        """Findings that refuse it."""
        return sum(problem.blocks for problem in self.problems)

    @property
    def verdict(self) -> str:
        """In one or two words."""
        if self.refusal:
            return "not read"
        if self.num_errors:
            return "errors"
        return "warnings" if self.problems else "clean"


def import_listing(recipe: ImportedRecipe, judgement: Judgement) -> str:
    """The processes as `fab plan` lists them, what was assumed, what was not understood, what was not judged."""
    plan = recipe.assembled.plan
    if "accelerator" in recipe.facts.unknown:
        hosts = tuple(replace(host, accelerator=_UNKNOWN) for host in plan.hosts)
        plan = replace(plan, hosts=hosts, tuning="unknown")
    documentation = not recipe.assembled.knows_addresses
    lines = [plan_listing(plan, documentation_addresses=documentation), f"read as {recipe.format}"]
    if recipe.others:
        shown = ", ".join(f"{name}={value}" for name, value in recipe.choice.items())
        lines += [f"  {len(recipe.others) + 1} combinations of the file are judged; shown: {shown}"]
    lines += ["", "assumed"]
    for note in recipe.facts.assumptions:
        where = f" (line {note.line})" if note.line is not None else ""
        lines.append(f"  {note.what} {note.value}: {note.why}{where}")
    if recipe.not_understood:
        lines += ["", "not understood"]
        lines += _not_understood(recipe.not_understood)
    if judgement.not_judged:
        lines += ["", "not judged"]
        lines += [
            f"  {len(row.rules)} rules, because {row.because}" for row in judgement.not_judged
        ]
    return "\n".join(lines) + "\n"


def _not_understood(rows: Iterable[NotUnderstood]) -> list[str]:
    """What was not understood, each thing once with all of its lines."""
    places: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        lines = places.setdefault((row.text, row.why), [])
        if row.line not in lines:
            lines.append(row.line)
    return [
        f"  line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}: {text}{': ' * bool(text)}{why}"
        for (text, why), lines in places.items()
    ]


def report_table(folder: str, rows: Sequence[ReportRow]) -> str:
    """A Markdown page: how many files of a tree are clean, and a row for each."""
    counts = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in ("clean", "warnings", "errors", "not read")
    }
    head = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    lines = [
        f"# Recipes under {folder}",
        "",
        f"{len(rows)} files: {head}. Written by `fab import {folder} --report`.",
        "",
        "A `?` behind a release: the nearest to the file's own, which the catalogue lacks.",
        "",
        "| file | format | engine | processes | not understood | rules not judged | verdict | first finding |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            row.file,
            row.format,
            row.engine,
            str(row.num_processes),
            str(row.num_not_understood),
            str(row.num_not_judged),
            row.verdict,
            row.refusal or _first(row.problems),
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _first(problems: Sequence[Problem]) -> str:
    if not problems:
        return ""
    first = problems[0]
    line = f"line {first.line}: " if first.line is not None else ""
    return f"{line}{first.what} [{first.rule}]"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
