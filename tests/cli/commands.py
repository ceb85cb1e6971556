"""Commands typed as an operator types them."""

from __future__ import annotations

import os
import subprocess

from infra.spec.load import PROJECT
from tests.fab_process import FAB, run_fab
from tests.needed import need_lab

__all__ = ["FAB", "begin", "need_lab", "run", "run_elsewhere"]


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


def run_elsewhere(*words: str) -> subprocess.CompletedProcess[str]:
    """The same on a machine of another name: whether processes of this one live cannot be told from there."""
    return run("unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$0" "$@"', *words)


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
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
