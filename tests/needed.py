"""What tests need of a machine: where it is missing they are skipped, but never in CI: there it is an error."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from infra.errors import InfraError, PrerequisiteError
from infra.rehearsal.lab.prerequisites import missing, observe_machine


def lacks(reason: InfraError) -> NoReturn:
    """Skip what cannot be tested here; in CI, raise the reason."""
    if os.environ.get("CI"):
        raise reason
    pytest.skip(str(reason))


def need_lab() -> None:
    """Skip the test where no lab can be started; in CI that is an error."""
    reason = missing(observe_machine())
    if reason is not None:
        lacks(reason)


def need_root(what_for: str) -> None:
    """Skip the test where root is needed and does not run it; in CI that is an error."""
    if os.geteuid() != 0:
        lacks(PrerequisiteError("this machine", what_for, "Run the tests as root."))


def need_program(name: str, package: str) -> None:
    """Skip the test where a program is missing; in CI that is an error."""
    if shutil.which(name) is None:
        what = f"{name} is not installed."
        lacks(PrerequisiteError("this machine", what, f"apt-get install {package}"))
