"""`fab import` on every published deployment: the page `docs/calibration.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.foreign import judge_recipe
from infra.checks.needs import COMPILERS_OWN
from infra.checks.rules import RULES
from infra.plan.foreign.imported_recipe import import_recipe
from tests.recipes.published_recipes import AcceptedWarning, PublishedRecipe, accepted_warnings

HEAD = """\
# Calibration on published deployments

Written by `pytest tests/recipes/test_published.py --update-golden`; a slow test keeps it current. The deployments are
data in `tests/recipes/published/`: what their authors published as working over two hosts or more (of
NVIDIA/srt-slurm-recipes the whole tree, on one host, too), without anything but flags, values and topology. Each is
written out in its own format and goes through `fab import`, so that what is judged is what an operator would get. None
may be refused but those that their authors mended in that very place later, and no warning may appear that nobody has
looked at.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What `fab import` says of one deployment.

    Args:
        named: the release in the file's own words, "" when nothing names one.
        judged_on: the releases on which a finding has to hold, as one text.
        num_hosts: hosts of the plan.
        errors, warnings: `rule: what`, in order.
        not_judged: rules that lacked something.
    """

    recipe: PublishedRecipe
    format: str
    named: str
    judged_on: str
    num_hosts: int
    num_processes: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    not_judged: int

    @property
    def warned(self) -> tuple[str, ...]:
        """Rules that warn, each once."""
        return tuple(dict.fromkeys(text.partition(":")[0] for text in self.warnings))

    @property
    def refused(self) -> tuple[str, ...]:
        """Rules that refuse it, each once, in the order of the recipe's own list."""
        found = {text.partition(":")[0] for text in self.errors}
        listed = [rule for rule in self.recipe.refused if rule in found]
        return (*listed, *sorted(found - set(listed)))

    @property
    def verdict(self) -> str:
        """In one word."""
        return "refused rightly" if self.errors else "warnings" if self.warnings else "clean"


def judge(recipe: PublishedRecipe, folder: Path, catalog: Catalog) -> Row:
    """One deployment written to a folder, imported and judged."""
    path = folder / recipe.file_name
    path.write_text(recipe.text, encoding="utf-8")
    imported = import_recipe(path, recipe.told, {}, catalog)
    judgement = judge_recipe(imported, catalog)
    plan, facts = imported.assembled.plan, imported.facts
    versions = [release.version for release in facts.judged_on]
    link = " and " if facts.release_named else " to "
    between = f"{versions[0]}{link}{versions[-1]}" if len(versions) > 1 else "".join(versions)
    return Row(
        recipe=recipe,
        format=imported.format,
        named="" if recipe.told.engine else facts.release_named or "",
        judged_on=f"{plan.engine.name} {between or 'none'}",
        num_hosts=len(plan.hosts),
        num_processes=len(plan.processes),
        errors=tuple(f"{p.rule}: {p.what}" for p in judgement.problems if p.blocks),
        warnings=tuple(f"{p.rule}: {p.what}" for p in judgement.problems if not p.blocks),
        not_judged=len({rule for row in judgement.not_judged for rule in row.rules}),
    )


def page(rows: Sequence[Row]) -> str:
    """The whole document."""
    parts = [*_summary(rows), *_mended(rows), *_reasons(rows), *_table(rows)]
    return HEAD + "\n".join(parts) + "\n"


def _summary(rows: Sequence[Row]) -> list[str]:
    verdicts = Counter(row.verdict for row in rows)
    names = ("clean", "warnings", "refused rightly")
    found = ", ".join(f"{verdicts[name]} {name}" for name in names)
    head = ("repository", "deployments", "on their own release", "between two", "on an older one")
    lines = [f"{len(rows)} deployments: {found}.", "", *_limits(rows), ""]
    lines += ["| " + " | ".join((*head, "on all, as warnings", "on none")) + " |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for repository in sorted({row.recipe.repository for row in rows}):
        of_it = [row for row in rows if row.recipe.repository == repository]
        counts = Counter(_kind(row) for row in of_it)
        cells = (counts[kind] for kind in ("own", "between", "told", "all", "none"))
        lines.append(f"| {repository} | {len(of_it)} | {' | '.join(map(str, cells))} |")
    told = {row.recipe.repository: row.recipe.told_why for row in rows if row.recipe.told_why}
    for repository, why in told.items():
        older = sum(_kind(row) == "told" and row.recipe.repository == repository for row in rows)
        lines += ["", f"{older} of {repository} are judged on a release that is not theirs: {why}."]
    return [*lines, ""]


def _limits(rows: Sequence[Row]) -> list[str]:
    """What these totals leave open: rules that were not judged, and findings that cannot block."""
    partly = sorted(row.not_judged for row in rows if row.not_judged)
    unnamed = sum(_kind(row) == "all" for row in rows)
    spread = (
        f"from {partly[0]} to {partly[-1]}, {partly[len(partly) // 2]} in the middle"
        if partly
        else "none"
    )
    return [
        f"On {len(partly)} of them some of the {len(RULES.keys() - COMPILERS_OWN)} rules that a file can be judged by",
        f"were not judged, for want of what the file does not say: {spread}.",
        f"On the {unnamed} whose release nothing names (on all, as warnings) a finding that depends on the release is",
        "a warning by construction: there, that none is refused is no evidence for the rules that depend on it.",
    ]


def _kind(row: Row) -> str:
    """How its releases were chosen."""
    if row.judged_on.endswith("none"):
        return "none"
    if row.recipe.told.engine:
        return "own" if row.recipe.branch else "told"
    if not row.named:
        return "all"
    return "between" if " and " in row.judged_on else "own"


def _mended(rows: Iterable[Row]) -> list[str]:
    lines = ["## Refused rightly", "", "| recipe | branch | rules | what its author mended |"]
    lines += ["|---|---|---|---|"]
    for row in rows:
        if row.recipe.mended:
            rules = ", ".join(f"`{rule}`" for rule in row.refused)
            name = f"{row.recipe.repository} `{row.recipe.path}`"
            lines.append(f"| {name} | {row.recipe.branch} | {rules} | {row.recipe.mended} |")
    return [*lines, ""]


def _reasons(rows: Sequence[Row]) -> list[str]:
    lines = ["## Warnings that appear, and why they stay", ""]
    lines += [
        "Every warning fits one of these; one of another key, variable or port fails the test.",
        "",
    ]
    lines += ["| rule | repository | deployments | finding | why |", "|---|---|---|---|---|"]
    for accepted in sorted(accepted_warnings(), key=lambda each: (each.rule, each.repository)):
        num = sum(any(accepted.covers(row.recipe, text) for text in row.warnings) for row in rows)
        finding = accepted.says.replace("|", "\\|")
        cells = (f"`{accepted.rule}`", accepted.repository, str(num), f"`{finding}`", accepted.why)
        lines.append("| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |")
    return [*lines, ""]


def uncovered(rows: Iterable[Row]) -> tuple[dict[str, list[str]], list[AcceptedWarning]]:
    """(source → warnings that nobody has looked at, entries of which there is no warning any more)."""
    unseen: dict[str, list[str]] = {}
    unused = list(accepted_warnings())
    for row in rows:
        for text in row.warnings:
            covering = [each for each in accepted_warnings() if each.covers(row.recipe, text)]
            unused = [each for each in unused if each not in covering]
            if not covering:
                unseen.setdefault(row.recipe.source, []).append(text)
    return unseen, unused


def _table(rows: Iterable[Row]) -> list[str]:
    lines = ["## Every deployment", ""]
    lines += [
        "| recipe | commit | release named | judged on | hosts | processes | rules not judged | verdict | warnings |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            f"{row.recipe.repository} `{row.recipe.path}`",
            row.recipe.commit[:7],
            row.recipe.branch or row.named or ("older" if row.recipe.told.engine else "none"),
            row.judged_on,
            str(row.num_hosts),
            str(row.num_processes),
            str(row.not_judged),
            row.verdict,
            ", ".join(f"`{rule}`" for rule in row.warned),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines
