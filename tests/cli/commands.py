"""Commands typed as an operator types them, and what a test of real hosts needs of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.rehearsal.lab.prerequisites import missing, observe_machine
from infra.spec.load import PROJECT

FAB = str(Path(sys.executable).parent / "fab")


def run(*words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One command to its end, in the project's folder: no terminal, nothing on standard input."""
    return subprocess.run(
        words,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def need_lab() -> None:
    """Skip the test where no lab can be started; in CI that is an error."""
    reason = missing(observe_machine())
    if reason is None:
        return
    if os.environ.get("CI"):
        raise reason
    pytest.skip(str(reason))
