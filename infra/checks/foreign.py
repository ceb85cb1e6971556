"""An imported recipe judged by every rule that can be, each finding at the line of the file that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.checks.foreign_view import view_recipe
from infra.checks.judge import find_all
from infra.checks.needs import COMPILERS_OWN, NEEDS, OF_ROUTERS, PLACES, Need
from infra.checks.rules import RULES
from infra.checks.view import Finding, Severity
from infra.engines.command_line import canonical_flag
from infra.engines.registry import ENGINES
from infra.errors import Problem
from infra.plan.foreign.imported_recipe import ImportedRecipe
from infra.plan.foreign.mounts import mount_line
from infra.plan.foreign.seats import Seat

_FLAG = re.compile(r"--([a-zA-Z][\w-]*)")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_BECAUSE: Mapping[Need, str] = {
    "release": "the engine's release lies beyond those of the catalogue",
    "names": "nothing names the engine's release",
    "accelerator": "the accelerator is not known",
    "checkpoint": "the model is not in the catalogue",
    "addresses": "the file does not say where every host is",
    "whole": "the file holds a part of the deployment",
    "layout": "sizes or ranks depend on variables that the file does not settle",
    "ports": "ports depend on variables that the file does not settle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJudged:
    """Rules that could not be judged, and for want of what."""

    because: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is wrong with an imported recipe, errors first, and what could not be judged."""

    problems: tuple[Problem, ...]
    not_judged: tuple[NotJudged, ...]


def judge_recipe(recipe: ImportedRecipe, catalog: Catalog) -> Judgement:
    """Every finding about an imported recipe, once per place of the file; of a sweep, of all of its combinations."""
    if not recipe.others:
        return _judge_one(recipe, catalog)
    every = (recipe, *recipe.others)
    return _together([(each.choice, _judge_one(each, catalog)) for each in every])


def _together(each: Sequence[tuple[Mapping[str, str], Judgement]]) -> Judgement:
    """What is found of a file's deployments; what some combinations of a sweep run without cannot refuse the file.

    A sweep tries combinations, and one that fails ends none of the others: the file is refused where each is. Variants
    are deployments of their own: the file is refused where one of them is.
    """
    found: dict[tuple[str, int | None, str], list[tuple[Mapping[str, str], Problem]]] = {}
    for choice, judgement in each:
        for problem in judgement.problems:
            key = (problem.rule, problem.line, problem.field)
            found.setdefault(key, []).append((choice, problem))
    refused: dict[str, bool] = {}
    for choice, judgement in each:
        is_bad = any(p.blocks for p in judgement.problems)
        variant = choice.get("variant", "")
        refused[variant] = refused.get(variant, True) and is_bad
    problems = []
    for rows in found.values():
        choice, first = rows[0]
        if len(rows) < len(each):
            named = ", ".join(f"{name}={value}" for name, value in choice.items())
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            where = f" So with {named}{more} of the {len(each)} combinations of the file."
            blocks = any(refused[choice.get("variant", "")] and p.blocks for choice, p in rows)
            severity: Severity = "error" if blocks else "warning"
            first = replace(first, what=f"{first.what}{where}", severity=severity)
        problems.append(first)
    not_judged: dict[str, dict[str, None]] = {}
    for _, judgement in each:
        for row in judgement.not_judged:
            not_judged.setdefault(row.because, {}).update(dict.fromkeys(row.rules))
    return Judgement(
        problems=tuple(sorted(problems, key=lambda p: (p.severity, p.line or 0, p.rule))),
        not_judged=tuple(NotJudged(because=b, rules=tuple(r)) for b, r in not_judged.items()),
    )


def _judge_one(recipe: ImportedRecipe, catalog: Catalog) -> Judgement:
    lacking = _lacking(recipe)
    flags = catalog.flags(recipe.facts.release.flags_catalogue)
    places = _Places(recipe, flags)
    found: dict[tuple[str, int | None, str, str], Problem] = {}
    for rule, finding in _agreed(recipe, lacking, catalog):
        problem = places.problem(rule, finding)
        if problem is not None:
            what = _without_process(problem.what, finding)
            found.setdefault((rule, problem.line, problem.field, what), problem)
    problems = sorted(found.values(), key=lambda p: (p.severity, p.line or 0, p.rule))
    fired = {problem.rule for problem in problems}
    left = {need: _asking(need, groups) - fired for need, groups in lacking.items()}
    return Judgement(
        problems=tuple(_merged(problems)),
        not_judged=tuple(
            NotJudged(because=_BECAUSE[need], rules=tuple(r for r in RULES if r in rules))
            for need, rules in left.items()
            if rules and (lacking[need] is None or lacking[need])
        ),
    )


_Groups = Mapping[Need, frozenset[str] | None]


def _agreed(
    recipe: ImportedRecipe, lacking: _Groups, catalog: Catalog
) -> list[tuple[str, Finding]]:
    """What can be judged and is found; where it depends on the release, on each that the file is judged on."""
    plan = recipe.assembled.plan
    found = [
        (rule, finding)
        for rule, finding in find_all(view_recipe(recipe, plan.engine.version, catalog))
        if rule not in COMPILERS_OWN and _can_be_judged(rule, finding, lacking, recipe)
    ]
    for release in recipe.facts.judged_on:
        depending = {rule for rule, _ in found if rule in NEEDS["release"]}
        if not depending or release.version == plan.engine.version:
            continue
        other = view_recipe(recipe, release.version, catalog)
        there = {(rule, f.field) for rule in depending for f in RULES[rule].findings(other)}
        found = [row for row in found if row[0] not in depending or (row[0], row[1].field) in there]
    return found


def _lacking(recipe: ImportedRecipe) -> _Groups:
    """What is unknown → the groups that it concerns, None for all of them."""
    assembled = recipe.assembled
    of_group: dict[str, list[Seat]] = {}
    for process in assembled.plan.processes:
        of_group.setdefault(process.group, []).append(assembled.seats[process.id])
    found: dict[Need, frozenset[str] | None] = {}
    for unknown in ("accelerator", "checkpoint"):
        if unknown in recipe.facts.unknown:
            found[unknown] = None
    if not recipe.facts.judged_on:
        found["release"] = None
    elif recipe.facts.release_named is None:
        found["names"] = None
    open_groups = _groups_where(of_group, "address")
    if not assembled.knows_addresses or open_groups:
        found["addresses"] = None
    if not recipe.is_whole:
        if recipe.is_collection:
            found["whole"] = None
            return found | _open_needs(of_group)
        has_router = any(p.kind == "router" for p in assembled.plan.processes)
        if assembled.incomplete or has_router:
            found["whole"] = frozenset({*assembled.incomplete, "router/0"})
    return found | _open_needs(of_group)


def _open_needs(of_group: Mapping[str, Iterable[Seat]]) -> dict[Need, frozenset[str] | None]:
    """Groups whose sizes or ports depend on what the file does not settle."""
    found: dict[Need, frozenset[str] | None] = {}
    needs: tuple[Need, ...] = ("layout", "ports")
    for need in needs:
        groups = _groups_where(of_group, need)
        if groups:
            found[need] = groups
    return found


def _groups_where(of_group: Mapping[str, Iterable[Seat]], what: str) -> frozenset[str]:
    def is_open(seat: Seat) -> bool:
        if what == "layout":
            return seat.is_layout_open
        return seat.are_ports_open if what == "ports" else seat.is_address_open

    return frozenset(group for group, seats in of_group.items() if any(map(is_open, seats)))


def _can_be_judged(rule: str, finding: Finding, lacking: _Groups, recipe: ImportedRecipe) -> bool:
    group = next(
        (p.group for p in recipe.assembled.plan.processes if p.id == finding.process), None
    )
    for need, groups in lacking.items():
        if need in PLACES and finding.holds_anywhere and not recipe.is_collection:
            continue
        if rule in _asking(need, groups) and (groups is None or group is None or group in groups):
            return False
    return True


def _asking(need: Need, groups: frozenset[str] | None) -> frozenset[str]:
    """Rules that cannot be judged for want of something that is unknown of these groups, None for all of them."""
    rules = NEEDS[need]
    if need == "whole" and groups is not None and all(g.startswith("router/") for g in groups):
        rules &= OF_ROUTERS
    return rules


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in the file each flag and variable of each process stands."""

    recipe: ImportedRecipe
    flags: FlagCatalogue

    def problem(self, rule: str, finding: Finding) -> Problem | None:
        """A finding at its line; None where it is about something that the file leaves open."""
        seat = self._seat(finding)
        field, line, is_open = _mount_place(finding, seat) or self._place(finding, seat)
        if is_open:
            return None
        severity, where = self._release_dependent(rule)
        return Problem(
            rule=rule,
            severity=severity,
            field=field,
            what=f"{finding.what}{where}",
            fix=finding.fix,
            file=self.recipe.file,
            line=line,
        )

    def _release_dependent(self, rule: str) -> tuple[Severity, str]:
        """(severity, on which releases it is so): without a release's name nothing that depends on it blocks."""
        facts = self.recipe.facts
        severity = RULES[rule].severity
        if rule not in NEEDS["release"] or len(facts.judged_on) == 1:
            return severity, ""
        first, last = facts.judged_on[0].version, facts.judged_on[-1].version
        if facts.release_named is None:
            return (
                "warning",
                f" So on every release from {first} to {last}; nothing names this one.",
            )
        if facts.is_between_releases:
            build = f"{facts.release_named} is a build between releases"
            return "warning", f" So on every release from {first} to {last}; {build}."
        return severity, f" So on {first} and on {last}; {facts.release_named} lies between."

    def _seat(self, finding: Finding) -> Seat | None:
        seats = self.recipe.assembled.seats
        if finding.process is not None:
            return seats.get(finding.process)
        parts = finding.field.split(".")
        role = parts[1] if parts[0] == "roles" and len(parts) > 1 else None
        first = (s for s in seats.values() if s.kind == "engine" and role in (None, s.role))
        return next(first, None)

    def _place(self, finding: Finding, seat: Seat | None) -> tuple[str, int | None, bool]:
        """(flag or variable as the file's author knows it, line, whether its value is open)."""
        if finding.field.startswith("engine") and self.recipe.facts.image_line is not None:
            return "image", self.recipe.facts.image_line, False
        if seat is None:
            return finding.field, None, False
        for name in _flags_of(finding, self.recipe):
            line = self._flag_line(seat, name)
            if line is not None:
                return f"--{name}", line, name in seat.open_flags
        for name in _VARIABLE.findall(f"{finding.field} {finding.what}"):
            word = seat.launch.env.get(name)
            if word is not None:
                return name, word.line, bool(word.open_names)
        if finding.field == "checkpoint":
            return "model", _model_line(seat), "model" in seat.open_flags
        return finding.field.rpartition(".")[2], seat.launch.line, False

    def _flag_line(self, seat: Seat, name: str) -> int | None:
        """The last word that names the flag: it is the one that counts."""
        found = None
        for word in seat.words:
            if not word.text.startswith("-"):
                continue
            fact = canonical_flag(word.text, self.flags)
            written = word.text.partition("=")[0].partition(".")[0].lstrip("-").replace("_", "-")
            if (fact is not None and fact.name == name) or written == name:
                found = word.line
        return found


def _flags_of(finding: Finding, recipe: ImportedRecipe) -> list[str]:
    """Canonical flags that a finding is about, the likeliest first."""
    names = []
    parts = finding.field.split(".")
    if "flags" in parts and parts[-1] != "flags":
        names.append(finding.field.partition(".flags.")[2])
    names += _FLAG.findall(finding.what)
    owned = ENGINES[recipe.facts.release.engine].owned_flags
    names += [flag for flag, field in owned.items() if field == parts[-1]]
    return names


def _mount_place(finding: Finding, seat: Seat | None) -> tuple[str, int | None, bool] | None:
    field, _, source = finding.field.partition(".")
    if seat is None or field != "mounts":
        return None
    return field, mount_line(source, seat.launch), False


def _model_line(seat: Seat) -> int:
    model = str(seat.reading.flags.get("model") or seat.reading.flags.get("model-path") or "")
    return next((word.line for word in seat.words if word.text == model), seat.launch.line)


def _without_process(what: str, finding: Finding) -> str:
    """The same fact of two processes is one fact where it is one line of the file."""
    return what.replace(finding.process or "\0", "")


def _merged(problems: Iterable[Problem]) -> list[Problem]:
    """One finding per rule, line and field; the first speaks for the others."""
    first: dict[tuple[str, int | None, str], Problem] = {}
    counts: dict[tuple[str, int | None, str], int] = {}
    for problem in problems:
        key = (problem.rule, problem.line, problem.field)
        first.setdefault(key, problem)
        counts[key] = counts.get(key, 0) + 1
    return [
        problem
        if counts[key] == 1
        else replace(problem, what=f"{problem.what} (and {counts[key] - 1} more)")
        for key, problem in first.items()
    ]
