"""Slow tests that share something stay together."""

from __future__ import annotations

import re
from pathlib import Path

from infra.spec.load import PROJECT
from tests.slow_groups import ALONE, KUBERNETES, LONGEST, ONE_LAB, SLOW, group_of, may_be_slow


def test_tests_of_one_cluster_or_file_stay_together_and_rehearsals_go_alone() -> None:
    assert group_of("tests/kubernetes/test_a.py::test_x") == group_of(f"{KUBERNETES}test_b.py::y")
    assert group_of("tests/cli/test_a.py::test_x[1]") == group_of("tests/cli/test_a.py::test_y")
    assert group_of("tests/cli/test_a.py::test_x") != group_of("tests/cli/test_b.py::test_x")
    assert group_of(f"{ALONE}test_a.py::test_x[1]") != group_of(f"{ALONE}test_a.py::test_x[2]")
    assert group_of(f"{ONE_LAB}test_a.py::test_x") == group_of(f"{ONE_LAB}test_a.py::test_y")


def test_no_slow_test_that_goes_alone_shares_what_its_file_starts() -> None:
    texts = {path: path.read_text("utf-8") for path in (PROJECT / ALONE).rglob("test_*.py")}
    slow = {path: text for path, text in texts.items() if SLOW in text}
    assert len(slow) > 10
    alone = {
        path: text
        for path, text in slow.items()
        if group_of(f"{path.relative_to(PROJECT)}::t").endswith("::t")
    }
    assert [path for path, text in alone.items() if 'scope="' in text] == []


def test_what_is_begun_first_is_there() -> None:
    assert [begins for begins in LONGEST if not (PROJECT / begins).exists()] == []


def test_only_a_file_that_names_the_mark_has_slow_tests(tmp_path: Path) -> None:
    """Such files alone are loaded by a run of slow tests: a mark from elsewhere would never be run."""
    others = {
        path: path.read_text("utf-8")
        for path in (PROJECT / "tests").rglob("*.py")
        if not path.name.startswith("test_")
    }
    marking = re.compile(r"mark(er)?s?\b.*\bslow\b")
    assert [path.name for path, text in others.items() if marking.search(text)] == [
        "slow_groups.py"
    ]
    for name, text in (("test_a.py", f"@{SLOW}"), ("test_b.py", ""), ("conftest.py", "")):
        (tmp_path / name).write_text(text)
    seen = {path.name for path in (tmp_path, *tmp_path.iterdir()) if may_be_slow(path)}
    assert seen == {tmp_path.name, "test_a.py", "conftest.py"}
