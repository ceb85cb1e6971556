"""What every test of a playbook needs: a machine that can simulate hosts."""

from __future__ import annotations

import os

import pytest

from infra.rehearsal.lab.prerequisites import missing, observe_machine


@pytest.fixture(scope="session")
def lab_is_possible() -> None:
    """Skips where no lab can be started, but never in CI: there it is an error."""
    reason = missing(observe_machine())
    if reason is not None:
        if os.environ.get("CI"):
            raise reason
        pytest.skip(str(reason))
