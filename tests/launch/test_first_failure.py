"""What a rank's log says first of its failure: every case of tests/cases/failure_logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.launch.first_failure import MAX_WORDS, journal_failure
from infra.spec.plain_yaml import read_yaml

CASES = Path(__file__).parents[1] / "cases" / "failure_logs"


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.stem)
def test_the_line_that_tells_of_a_failure_is_found(path: Path) -> None:
    case = read_yaml(path)
    assert case["origin"].startswith("recorded with ")
    lines = case["input"].splitlines()
    stamped = [f"2026-11-27T05:56:00.{i:06d} {line}" for i, line in enumerate(lines)]
    found = journal_failure("decode-0/0", "decode-0", stamped)
    assert (found and found.line) == (case["expected"] and case["expected"][:MAX_WORDS])
