"""Slow tests that share something stay together."""

from __future__ import annotations

from infra.spec.load import PROJECT
from tests.slow_groups import ALONE, KUBERNETES, LONGEST, ONE_LAB, group_of


def test_tests_of_one_cluster_or_file_stay_together_and_rehearsals_go_alone() -> None:
    assert group_of("tests/kubernetes/test_a.py::test_x") == group_of(f"{KUBERNETES}test_b.py::y")
    assert group_of("tests/cli/test_a.py::test_x[1]") == group_of("tests/cli/test_a.py::test_y")
    assert group_of("tests/cli/test_a.py::test_x") != group_of("tests/cli/test_b.py::test_x")
    assert group_of(f"{ALONE}test_a.py::test_x[1]") != group_of(f"{ALONE}test_a.py::test_x[2]")
    assert group_of(f"{ONE_LAB}test_a.py::test_x") == group_of(f"{ONE_LAB}test_a.py::test_y")


def test_no_slow_test_that_goes_alone_shares_what_its_file_starts() -> None:
    texts = {path: path.read_text("utf-8") for path in (PROJECT / ALONE).rglob("test_*.py")}
    slow = {path: text for path, text in texts.items() if "pytest.mark.slow" in text}
    assert len(slow) > 10
    assert [path for path, text in slow.items() if 'scope="' in text] == []


def test_what_is_begun_first_is_there() -> None:
    assert [begins for begins in LONGEST if not (PROJECT / begins).exists()] == []
