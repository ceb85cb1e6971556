"""What tests need of a machine: where it is missing they are skipped, but never in CI: there it is an error."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from infra.errors import InfraError
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
