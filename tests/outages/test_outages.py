"""Every reported failure is stopped by what its file names, or by nothing, as its file says; the page says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.checks.rules import RULES
from infra.launch.preflight.table import CHECKS
from tests.outages.listing import PATH, outages_document
from tests.outages.replay import Finding, findings, findings_without
from tests.outages.reports import Named, Noticed, read_reports

REPORTS = read_reports()
STOPPED = [pytest.param(each, id=each.name) for each in REPORTS if each.report.stopped is not None]
OPEN = [pytest.param(each, id=each.name) for each in REPORTS if each.report.stopped is None]
WARNED = [pytest.param(each, id=each.name) for each in REPORTS if each.report.warned]
LEAST = 45


def of(found: list[Finding], noticed: Noticed) -> list[Finding]:
    return [each for each in found if each.by == noticed.by and noticed.says in each.what]


@pytest.mark.parametrize("named", STOPPED)
def test_a_report_is_stopped_by_what_it_names(named: Named, tmp_path: Path) -> None:
    stopped = named.report.stopped
    assert stopped is not None
    found = findings(named.report.reproduction, tmp_path)
    assert of(found, stopped), found
    assert {each.severity for each in of(found, stopped)} == {"error"}
    assert {each.by for each in found if each.severity == "error"} == {stopped.by, *stopped.also}


@pytest.mark.parametrize("named", STOPPED)
def test_it_is_the_failure_that_is_found(named: Named, tmp_path: Path) -> None:
    stopped = named.report.stopped
    assert stopped is not None
    without = findings_without(named.report.reproduction, tmp_path)
    assert of(without, stopped) == []
    assert [each for each in without if each.severity == "unknown"] == [], (
        "nothing says that it is right now"
    )


@pytest.mark.parametrize("named", OPEN)
def test_what_is_said_to_stop_nothing_stops_nothing(named: Named, tmp_path: Path) -> None:
    found = findings(named.report.reproduction, tmp_path)
    assert [each for each in found if each.severity == "error"] == [], (
        "something stops it by now: say so"
    )


@pytest.mark.parametrize("named", WARNED)
def test_what_is_said_to_warn_warns_of_the_mistake(named: Named, tmp_path: Path) -> None:
    found = findings(named.report.reproduction, tmp_path)
    without = findings_without(named.report.reproduction, tmp_path)
    for warned in named.report.warned:
        assert {each.severity for each in of(found, warned)} == {"warning"}, found
        assert of(without, warned) == []


@pytest.mark.parametrize("named", OPEN)
def test_every_rule_and_check_that_a_reason_names_is_held_to_it(named: Named) -> None:
    words = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", named.report.because or ""))
    assert words & {*RULES, *CHECKS} == {warned.by for warned in named.report.warned}


def test_a_majority_of_many_reports_is_stopped() -> None:
    assert len(REPORTS) >= LEAST
    assert len(STOPPED) > len(OPEN) * 2


def test_what_stops_is_something_that_exists() -> None:
    for named in REPORTS:
        stopped = named.report.stopped
        if stopped is not None and stopped.at == "preflight":
            assert stopped.by in CHECKS, named.name
        elif stopped is not None and stopped.at == "check":
            assert stopped.by in RULES or named.report.reproduction.kind == "stack", named.name


def test_the_page_is_current(*, update_golden: bool) -> None:
    text = outages_document(REPORTS)
    if update_golden:
        PATH.write_text(text, encoding="utf-8")
    assert PATH.read_text(encoding="utf-8") == text, "run with --update-golden, then read the diff"
