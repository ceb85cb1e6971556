"""Commands typed as an operator types them, and what a test of real hosts needs of this machine."""

from __future__ import annotations

import os
import subprocess

import pytest

from infra.rehearsal.lab.prerequisites import missing, observe_machine
from infra.spec.load import PROJECT
from tests.fab_process import FAB, run_fab

__all__ = ["FAB", "begin", "need_lab", "run"]


def run(*words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One command to its end, in the project's folder: no terminal, nothing on standard input."""
    if words[0] == FAB:
        return run_fab(*words[1:], timeout_s=timeout_s)
    return subprocess.run(
        words,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def begin(*words: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """One command that is not awaited, in the project's folder, with a pipe behind its standard error.

    Args:
        words: of the command line.
        stdout: where its data goes, as `subprocess` names it.
    """
    return subprocess.Popen(
        words,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def need_lab() -> None:
    """Skip the test where no lab can be started; in CI that is an error."""
    reason = missing(observe_machine())
    if reason is None:
        return
    if os.environ.get("CI"):
        raise reason
    pytest.skip(str(reason))
