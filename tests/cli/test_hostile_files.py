"""Files that would end the interpreter: `fab` itself ends with a message that names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fab_process import run_fab

DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
FILES = {
    "plan": (DEEP, ("check", "--plan")),
    "stack": ("extends: h200-tp8\nroles: " + "[" * 100_000, ("check", "--file")),
    "sizes": ("extends: h200-tp8\nroles: {unified: {replicas: 1000000000}}\n", ("check", "--file")),
    "recipe": ("f() { f; f; for i in {1..250}; do f; done; }\nf\n", ("import",)),
    "inventory": ("a: {hosts: {'h[1:999999999]': }}\n", ("check", "--stack", "h200-tp8", "--inventory")),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_end_is_named(name: str, tmp_path: Path) -> None:
    text, words = FILES[name]
    file = tmp_path / ("mine.sh" if name == "recipe" else "mine.yaml")
    file.write_text(text)
    done = run_fab(*words, str(file), "--json", timeout_s=60.0)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert "mine." in json.dumps(document)


def test_a_set_that_expands_without_end_is_no_value() -> None:
    bomb = (
        "{a: &a [x], b: &b ["
        + "*a," * 200
        + "], c: &c ["
        + "*b," * 200
        + "], d: ["
        + "*c," * 200
        + "]}"
    )
    done = run_fab("check", "--stack", "h200-tp8", "--set", f"summary={bomb}", timeout_s=60.0)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
