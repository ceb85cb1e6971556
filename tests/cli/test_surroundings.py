"""The real `fab` where output goes nowhere, or to a terminal of another character set."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from tests.fab_process import FAB


def plainly(words: tuple[str, ...], **surroundings: str) -> subprocess.CompletedProcess[bytes]:
    """One call through a shell, in a process of its own: the interpreter's start is what is asked."""
    line = " ".join([FAB, *words])
    environment = {**os.environ, **surroundings}
    return subprocess.run(
        ["sh", "-c", line], cwd=PROJECT, env=environment, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("plan --stack h200-tp8 >&-", 0),
        ("--help up >&-", 0),
        ("plan 2>&-", 2),
        ("plan --stack h200-tp8 >/dev/full", 3),
        ("--list >/dev/full", 3),
        ("--version >/dev/full", 3),
        ("--help >/dev/full", 3),
        ("--print-completion-script bash >/dev/full", 3),
        ("stacks >/dev/full", 3),
        ("check --stack h200-tp8 --json >/dev/full", 3),
        ("--version >&-", 0),
        ("checc >&- 2>&-", 2),
        ("stacks | head -n 1", 0),
        ("--version | true", 0),
    ],
)
def test_output_that_goes_nowhere_gives_no_traceback(task: str, code: int) -> None:
    done = plainly((task,))
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert (b"No space left on device. Make room" in done.stderr) == (code == 3)


@pytest.mark.parametrize("task", ["checc", "stacks", "plan --stack nothing"])
def test_errors_that_have_no_room_give_no_traceback_either(task: str) -> None:
    done = plainly((task, "2>/dev/full"))
    assert done.returncode in (2, 3)
    assert b"Traceback" not in done.stdout


def test_a_word_of_the_command_line_commands_no_terminal() -> None:
    done = plainly(("$(printf 'che\\033[31mk')",))
    assert done.returncode == 2
    assert rb"There is no task che\x1b[31mk." in done.stderr


def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    wrong = tmp_path / "mine.yaml"
    wrong.write_text("extends: h200-tp8\ngröße: 1\n", encoding="utf-8")
    done = plainly(("check", "--file", str(wrong)), PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert b"There is no field gr\\xf6\\xdfe here" in done.stdout
    as_json = plainly(("check", "--file", str(wrong), "--json"), PYTHONIOENCODING="ascii")
    assert json.loads(as_json.stdout)["problems"][0]["field"] == "größe"
