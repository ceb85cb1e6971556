"""Files that no stack can be: each is told in words of YAML, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec.load import load_stack
from tests.spec.test_load import WHOLE, problems_of, written


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (WHOLE + 'summary: "a\\0b"\n', 7, "The value holds a zero byte"),
        (WHOLE + "---\nport: 1\n", 7, "A second document begins here."),
        (WHOLE + "port: 2026-01-01\n", 7, "2026-01-01 is not an integer."),
        (WHOLE + "waive: [{rule: a-b, reason: x}]\n", 7, "'x' is shorter than 3 characters."),
    ],
    ids=["zero", "second", "date", "short"],
)
def test_a_strange_value_is_told_in_words_of_yaml(
    text: str, line: int, what: str, tmp_path: Path
) -> None:
    (problem,) = problems_of(written(tmp_path, text))
    assert problem.line == line
    assert problem.what.startswith(what)


def test_a_file_that_is_no_text_is_told_where(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"port: \xff")
    (problem,) = problems_of(path)
    assert problem.what == "The file cannot be read: byte 7 is no UTF-8 text."


@pytest.mark.parametrize("name", ["UPPER", "a.b", "1st", "a-", "a_b"])
def test_a_name_that_a_cluster_could_not_take_over_is_refused_there_alone(
    name: str, tmp_path: Path
) -> None:
    path = written(tmp_path, WHOLE, f"{name}.yaml")
    assert load_stack(str(path)).name == name
    (problem,) = problems_of(path, "platform=existing-kubernetes")
    assert problem.rule == "stack-name"
