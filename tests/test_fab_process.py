"""What the tests of the command line run is what its file runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.rehearsal.folders import PREFIX
from infra.spec.load import PROJECT
from tests.fab_process import FAB, run_fab


@pytest.mark.parametrize(
    "words",
    [
        ("--list",),
        ("--help", "plan"),
        ("check", "--stack", "h200-tp8", "--json"),
        ("plan", "--stack", "no-such-stack"),
        ("plan", "--stak", "x"),
        ("nothing",),
    ],
    ids="-".join,
)
def test_a_forked_command_says_and_leaves_with_what_a_started_one_does(
    words: tuple[str, ...],
) -> None:
    started = subprocess.run(
        [FAB, *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    forked = run_fab(*words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_a_forked_command_has_its_own_variables(tmp_path: Path) -> None:
    forgotten = tmp_path / f"{PREFIX}0"
    forgotten.mkdir()
    (forgotten / "lab.log").touch()
    os.utime(forgotten, (0, 0))
    words = ("rehearse", "--stack", "a3-2p1d", "--to-step", "plan")
    assert run_fab(*words, environment={**os.environ, "TMPDIR": str(tmp_path)}).returncode == 0
    assert not forgotten.exists()


def test_a_forked_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_fab("plan", "--stack", "a3-2p1d", timeout_s=0.001)
    assert run_fab("--list").returncode == 0
