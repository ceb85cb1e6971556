"""The reports as a page: docs/outages.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infra.spec.load import PROJECT
from tests.outages.reports import Named, Report

PATH = PROJECT / "docs" / "outages.md"
HEAD = """\
# Outages from the record

Written by `pytest tests/outages --update-golden` from `tests/cases/outages/`, where each report's configuration lies as
data: a stack or a plan, somebody else's recipe, facts of hosts, or lines that an engine logged. A test judges each of
them as `fab check`, `fab import`, `fab preflight` and `fab verify` do, and demands what this page says: the rule or
check that is named stops it, nothing else does that is not named beside it, and without the mistake it is silent. Where
nothing stops it, a rule or check that a reason names warns. Configurations are those of the reports on the releases and
checkpoints of the catalogue, which are larger than some reporters': hence `weights-memory` beside others.

"""
WHERE = {"check": "`fab check`", "preflight": "`fab preflight`", "verify": "`fab verify`"}


def outages_document(reports: Sequence[Named]) -> str:
    """The content of docs/outages.md: what stops how many, the stopped ones, and the others with the reason."""
    stopped = [each.report for each in reports if each.report.stopped is not None]
    others = [each.report for each in reports if each.report.stopped is None]
    counts = Counter(WHERE[each.stopped.at] for each in stopped if each.stopped is not None)
    parts = [f"{count} by {where}" for where, count in counts.items()]
    num_reports = len({each.report.source for each in reports})
    text = f"{len(reports)} failures from {num_reports} reports: {len(stopped)} are stopped ({', '.join(parts)}), "
    text += f"{len(others)} are not.\n\n"
    text += "## Stopped\n\n| report | what happened | stopped by |\n|---|---|---|\n"
    text += "".join(_row(each, _stopped(each)) for each in stopped)
    text += f"\n## Not stopped before hardware\n\n{_without_configuration(others)}\n\n"
    text += "| report | what happened | why not, and what notices it |\n|---|---|---|\n"
    text += "".join(_row(each, each.because or "") for each in others)
    return HEAD + text


def _without_configuration(others: Sequence[Report]) -> str:
    """How many are judged on a configuration that is not theirs."""
    shipped = sum(each.reproduction.is_shipped_stack for each in others)
    return (
        f"{shipped} of these {len(others)} have no configuration of their own here: a shipped stack stands for each,\n"
        "as it is, so that nothing stops it shows no more than that all checks are silent about that stack."
    )


def _stopped(report: Report) -> str:
    stopped = report.stopped
    if stopped is None:
        return ""
    also = "".join(f", also `{other}`" for other in stopped.also)
    return f"`{stopped.by}` of {WHERE[stopped.at]}{also}"


def _row(report: Report, last: str) -> str:
    repository, _, number = report.source.partition("#")
    link = f"[{repository}#{number}](https://github.com/{repository}/issues/{number})"
    cells = (link, report.happened, last)
    return (
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\\\|") for cell in cells) + " |\n"
    )
