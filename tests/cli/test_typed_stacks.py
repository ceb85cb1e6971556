"""The real `fab` on what is typed of a stack: values that are no YAML, files that are none, no stack at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fab_process import run_fab

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("word", "file", "what"),
    [
        ("port=2024-13-45", "--set port=2024-13-45", "'2024-13-45' is not an integer."),
        (f"port={DIGITS}", f"--set port={DIGITS}", "is not an integer."),
        (f"port={'[' * 3000}", f"--set port={'[' * 3000}", "is not an integer."),
        ("port=&a [*a]", "--set port=&a [*a]", "'&a [*a]' is not an integer."),
        (
            "roles.unified.tensor_parallel.x=5",
            "--set roles.unified.tensor_parallel.x=5",
            "{'x': 5} is not an integer.",
        ),
        ("extends=a3-2p1d", "--set", "What a stack extends is read before --set is applied."),
    ],
    ids=["no-date", "digits", "deep", "within-itself", "below-a-number", "extends"],
)
def test_a_value_that_cannot_be_is_told_where_it_was_typed(word: str, file: str, what: str) -> None:
    done = run_fab("check", "--stack", "h200-tp8", "--set", word, "--json")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["file"] == file
    assert problem["what"].endswith(what)


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"extends: h200-tp8\nsummary: gr\xf6\xdfe\n", 2, "byte 30 is no UTF-8 text"),
        (f"port: {DIGITS}\n".encode(), 1, "a number there has thousands of digits."),
    ],
    ids=["latin", "digits"],
)
def test_what_cannot_be_read_is_told_in_its_line(
    content: bytes, line: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    done = run_fab("check", "--file", str(file), "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert (done.returncode, problem["line"]) == (2, line)
    assert said in problem["what"]


def test_a_device_is_no_stack_file() -> None:
    done = run_fab("plan", "--file", "/dev/null")
    assert done.returncode == 2
    assert "/dev/null is a pipe or a device" in done.stderr


@pytest.mark.parametrize("words", [("stacks",), ("check", "--explain", "kv-role")])
def test_a_document_of_no_one_stack_says_so(words: tuple[str, ...]) -> None:
    document = json.loads(run_fab(*words, "--json").stdout)
    assert (document["schema_version"], document["stack"], document["ok"]) == (1, None, True)
